"""Every route is described."""

import httpx


def test_every_route_is_described(api: httpx.Client) -> None:
    from app.api.app import Box, routes

    root = str(api.base_url).removesuffix("/api/v1/")
    described = httpx.get(f"{root}/api/openapi.json", trust_env=False).json()["paths"]
    served = {
        r.path for r in routes(Box()) if r.path.startswith("/api/v1/") and "rest" not in r.path
    }

    assert set(described) == served
    assert "Bearer" in httpx.get(f"{root}/api/docs", trust_env=False).text
