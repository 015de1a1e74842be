"""The endpoint of a run: an HTTP server through which clients ask its metered models.

`http_server.Endpoint` serves clients. `client_requests` and `client_responses` know what the
protocols of OpenAI and Anthropic say, `metered_parameters` which requests can be metered, `target`
where those of a model go, and `forwarding.Forwarder` sends them and keeps account.
"""
