"""The endpoint of a run: an HTTP server through which clients ask its metered models.

`http_server.Endpoint` serves clients. `requests` and `responses` know what the protocols of OpenAI
and Anthropic say, `metered_parameters` which requests can be metered, and `forwarding.Forwarder`
sends a request to the provider of a model.
"""
