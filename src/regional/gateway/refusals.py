"""What the edge says when it says no: API Gateway's statuses, messages and `x-amzn-errortype`, word for word."""

from __future__ import annotations

import msgspec


class Refusal(Exception):
    def __init__(self, status: int, error_type: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.message = message

    def body(self) -> bytes:
        return msgspec.json.encode({"message": self.message})


def missing_token() -> Refusal:
    return Refusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")


def incomplete(message: str) -> Refusal:
    return Refusal(403, "IncompleteSignatureException", message)


def bad_signature(message: str = "") -> Refusal:
    return Refusal(
        403,
        "InvalidSignatureException",
        message
        or "The request signature we calculated does not match the signature you provided. Check your AWS Secret"
        " Access Key and signing method. Consult the service documentation for details.",
    )


def unknown_key() -> Refusal:
    return Refusal(403, "UnrecognizedClientException", "The security token included in the request is invalid.")


def forbidden() -> Refusal:
    return Refusal(403, "ForbiddenException", "Forbidden")


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequestException", message)


def too_large(limit: int) -> Refusal:
    return Refusal(413, "RequestTooLargeException", f"HTTP content length exceeded {limit} bytes.")


def headers_too_large(limit: int) -> Refusal:
    return Refusal(431, "RequestHeaderFieldsTooLargeException", f"Request line and headers exceed {limit} bytes.")


def body_too_slow() -> Refusal:
    return Refusal(408, "RequestTimeoutException", "The request's body did not arrive in time.")


def too_many() -> Refusal:
    return Refusal(429, "TooManyRequestsException", "Too Many Requests")


def internal() -> Refusal:
    return Refusal(500, "InternalServerErrorException", "Internal server error")


def bad_gateway() -> Refusal:
    return Refusal(502, "InternalServerErrorException", "Network error communicating with endpoint")


def timed_out() -> Refusal:
    return Refusal(504, "GatewayTimeoutException", "Endpoint request timed out")
