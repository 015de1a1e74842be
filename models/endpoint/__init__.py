"""The endpoint of a run: an HTTP server through which clients ask its metered models.

`http_server.Endpoint` reads requests, `dialects` knows what the protocols of OpenAI and Anthropic
say, and `forwarding.Forwarder` sends a request to the provider of a model.
"""
