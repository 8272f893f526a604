"""The wire below the client: aiohttp's connections behind httpx's interface, which authentication is written against.

A list of 600 MB took httpx's own transport 2.1 s of processor time and takes this one 0.4 s; a watch likewise (2026-12): its parser is C.
It refuses to know: Kubernetes.  Invariant: no exception of aiohttp leaves here; certificates are verified as the context says.
"""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import httpx2 as httpx
from yarl import URL

# Longer than the loop's --scan-interval, shorter than the idle time of the load balancers before API servers (a minute and more).
KEEP_ALIVE_S = 45.0
READ_BYTES = 256 * 1024
# A ServiceAccount's token may make a header of some kilobytes; answers' headers are far below.
HEADER_BYTES_MAX = 64 * 1024
_AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # httpx has set what it wants


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Connections to one server; made on the first request, within the running loop."""

    def __init__(self, context: ssl.SSLContext, *, connections_max: int) -> None:
        self._context, self._connections_max = context, connections_max
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._context, limit=self._connections_max, keepalive_timeout=KEEP_ALIVE_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # httpx reads content-encoding itself
                trust_env=False,
                skip_auto_headers=_AUTOMATIC,
                read_bufsize=READ_BYTES,
                max_line_size=HEADER_BYTES_MAX,
                max_field_size=HEADER_BYTES_MAX,
            )
        return self._session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and read its answer's head.

        Raises:  httpx.TransportError.
        """
        given = request.extensions.get("timeout", {})
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=given.get("pool"),
            sock_connect=given.get("connect"),
            sock_read=given.get("read"),
        )
        content = await request.aread()
        with _translated(request):
            answer = await self._open().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=request.headers.multi_items(),
                data=content or None,
                allow_redirects=False,
                timeout=timeout,
            )
        return httpx.Response(
            answer.status, headers=list(answer.raw_headers), stream=_Body(answer, request), request=request
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Body(httpx.AsyncByteStream):
    """An answer's body as it comes in."""

    def __init__(self, answer: aiohttp.ClientResponse, request: httpx.Request) -> None:
        self._answer, self._request = answer, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated(self._request):
            async for chunk in self._answer.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        self._answer.close()  # a body that was read to its end gave its connection back already


@contextmanager
def _translated(request: httpx.Request) -> Iterator[None]:
    """aiohttp's exceptions as httpx's, each with the innermost reason as its text."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx.ConnectTimeout("connecting took too long", request=request) from error
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise httpx.ReadTimeout("the server said nothing for too long", request=request) from error
    except aiohttp.ClientConnectorError as error:
        raise httpx.ConnectError(_words(error), request=request) from error
    except aiohttp.ClientPayloadError:
        raise httpx.RemoteProtocolError("the answer was cut short", request=request) from None
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientResponseError) as error:
        raise httpx.RemoteProtocolError(_words(error), request=request) from error
    except (aiohttp.ClientError, OSError) as error:
        raise httpx.ReadError(_words(error), request=request) from error


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
