"""HTTP/1.1 without I/O: strict reading of heads, rebuilding them, and the framing of bodies (RFC 9112)."""

from unslow.core.wire.http1.body import (
    Body,
    ChunkedAnswer,
    ChunkedUpload,
    FixedBody,
    NoBody,
    UntilClose,
    answer_body,
    chunk,
    upload_body,
)
from unslow.core.wire.http1.grammar import HOP_BY_HOP, Field, read_length, write_fields
from unslow.core.wire.http1.request import (
    RequestHead,
    read_request_head,
    refuse_upgrade_with_body,
    stray_line_end,
)
from unslow.core.wire.http1.response import ResponseHead, read_response_head, reason

__all__ = [
    "HOP_BY_HOP",
    "Body",
    "ChunkedAnswer",
    "ChunkedUpload",
    "Field",
    "FixedBody",
    "NoBody",
    "RequestHead",
    "ResponseHead",
    "UntilClose",
    "answer_body",
    "chunk",
    "read_length",
    "read_request_head",
    "read_response_head",
    "reason",
    "refuse_upgrade_with_body",
    "stray_line_end",
    "upload_body",
    "write_fields",
]
