"""The OpenAI-compatible face: request models, responses, SSE, errors in OpenAI's shape, the starlette app.

Knows nothing of gRPC or Kubernetes. Only `main` (and `kvroll serve`) imports it.
"""
