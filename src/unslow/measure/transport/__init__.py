"""Sockets with kernel stamps, DNS, TLS by MemoryBIO, HTTP/1.1 and HTTP/2; libcurl for HTTP/3."""
