"""Listen addresses as Go writes them."""

from nobiru.kernel.errors import ConfigError

PORT_MAX = 65_535


def split_address(address: str) -> tuple[str | None, int]:
    """(host or None for all interfaces, port) of ":8085", "127.0.0.1:8085" or "[::1]:8085".

    Raises:  ConfigError.
    """
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    fits = colon and port.isascii() and port.isdecimal() and int(port) <= PORT_MAX
    if not fits or (":" in bare and bare == host) or any(letter in bare for letter in "[]/ "):
        raise ConfigError(f'"{address}" is not host:port, such as :8085 or 127.0.0.1:8085')
    return bare or None, int(port)
