"""Wake-ups: PostgreSQL LISTEN, Redis, RabbitMQ and the outbox relay."""
