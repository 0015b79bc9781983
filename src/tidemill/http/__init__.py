"""The HTTP server: the application, middleware, OpenAPI and system routes."""
