"""The benchmark of wake-ups: by the database, by Redis, by RabbitMQ."""
