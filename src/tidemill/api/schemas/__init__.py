"""The shapes of requests and answers, a file for each part of the API."""
