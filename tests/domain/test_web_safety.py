"""The safety rules of the console, against what attackers can send."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import NotPermittedError
from tileferry.domain.retry import RetryBudget
from tileferry.domain.web_safety import (
    SESSION_CHARS_MAX,
    AccessTokens,
    AllowedHosts,
    RateLimiter,
    Refusal,
    Role,
    Session,
    SessionSigner,
    check_change,
    check_exposure,
    is_same_origin,
    parse_host,
)

LOOPBACK = AllowedHosts.build("127.0.0.1", ["map.example"])
SIGNER = SessionSigner(b"k" * 32)
NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20)
SESSIONS = st.builds(
    Session,
    actor=st.text(min_size=1, max_size=64).filter(lambda text: text.isprintable()),
    role=st.sampled_from(Role),
    expires_at_s=st.integers(1, 2**40),
    nonce=st.text(string.ascii_letters, min_size=16, max_size=32),
)
OPERATOR = Session(actor="Ada", role=Role.OPERATOR, expires_at_s=1_000, nonce="n" * 20)


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:1",
        "[::1]:8080",
        "[::1]",
        "map.example.",
        "map.example:443",
    ],
)
def test_own_names_are_permitted(header: str) -> None:
    assert LOOPBACK.permits(header)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.5",
        "localhost:8080:1", "user@localhost", "localhost/", "localhost evil", "[::1", "[zz]", "::1",
        "local\0host", "localhost:abc", "[::2]", ".",
    ],
)  # fmt: skip
def test_any_other_host_is_refused(header: str | None) -> None:
    assert not LOOPBACK.permits(header)


@given(NAMES, NAMES)
def test_rebound_names_are_refused_whatever_they_resolve_to(host: str, domain: str) -> None:
    assert not LOOPBACK.permits(f"{host}.{domain}.test")
    assert not AllowedHosts.build("0.0.0.0").permits(f"{host}.{domain}.test")  # noqa: S104  # not bound


def test_addresses_are_permitted_where_others_may_connect() -> None:
    public = AllowedHosts.build("0.0.0.0", ["map.example"])  # noqa: S104  # not bound
    assert public.permits("192.168.1.5:8443")
    assert public.permits("[fe80::1]:8443")
    assert public.permits("map.example")


@given(st.text(max_size=60))
def test_host_header_is_never_misread(header: str) -> None:
    host = parse_host(header)
    assert host is None or (host == host.lower() and "/" not in host and "@" not in host)


@pytest.mark.parametrize(("has_token", "has_tls"), [(True, False), (False, True), (False, False)])
def test_listening_beyond_loopback_needs_token_and_tls(*, has_token: bool, has_tls: bool) -> None:
    check_exposure("127.0.0.1", has_token=has_token, has_tls=has_tls)
    check_exposure("192.168.1.5", has_token=True, has_tls=True)
    with pytest.raises(NotPermittedError, match=r"serve\.token_file"):
        check_exposure("192.168.1.5", has_token=has_token, has_tls=has_tls)


OWN = "http://localhost:8080"


@pytest.mark.parametrize(
    ("origin", "fetch_site", "is_own"),
    [
        (OWN, "same-origin", True),
        (OWN, None, True),
        (None, "same-origin", True),
        (None, None, False),
        ("null", "same-origin", False),
        ("http://localhost:8081", None, False),
        ("https://localhost:8080", None, False),
        ("http://evil.example", "cross-site", False),
        (OWN, "cross-site", False),
        (OWN, "same-site", False),
        (None, "none", False),
    ],
)
def test_only_pages_of_this_server_send_changes(
    origin: str | None, fetch_site: str | None, *, is_own: bool
) -> None:
    assert is_same_origin(origin=origin, fetch_site=fetch_site, own_origin=OWN) is is_own


@given(SESSIONS)
def test_session_survives_its_cookie(session: Session) -> None:
    cookie = SIGNER.seal(session)
    if len(cookie) <= SESSION_CHARS_MAX:
        assert SIGNER.open(cookie, now_s=session.expires_at_s - 1) == session
    assert SIGNER.open(cookie, now_s=session.expires_at_s) is None
    assert SessionSigner(b"x" * 32).open(cookie, now_s=0) is None


@given(st.data())
def test_changed_cookie_is_refused(data: st.DataObject) -> None:
    cookie = SIGNER.seal(OPERATOR)
    at = data.draw(st.integers(0, len(cookie) - 1))
    letter = data.draw(st.characters(exclude_characters=cookie[at]))
    changed = cookie[:at] + letter + cookie[at + 1 :]
    # The last letter of a signature has unused bits, but the text itself must match.
    assert SIGNER.open(changed, now_s=0) is None


@given(st.text(max_size=2_000))
def test_foreign_cookie_is_refused(cookie: str) -> None:
    assert SIGNER.open(cookie, now_s=0) is None


@given(st.text(max_size=100))
def test_csrf_token_belongs_to_one_session(token: str) -> None:
    other = Session(actor="Ada", role=Role.OPERATOR, expires_at_s=1_000, nonce="m" * 20)
    assert SIGNER.check_csrf_token(OPERATOR, SIGNER.make_csrf_token(OPERATOR))
    assert not SIGNER.check_csrf_token(OPERATOR, SIGNER.make_csrf_token(other))
    assert not SIGNER.check_csrf_token(OPERATOR, token)


def test_session_signature_is_not_a_csrf_token() -> None:
    cookie = SIGNER.seal(OPERATOR)
    assert not SIGNER.check_csrf_token(OPERATOR, cookie.partition(".")[2])


def test_tokens_give_roles() -> None:
    tokens = AccessTokens(operator="o" * 20, viewer="v" * 20)
    assert tokens.find_role("o" * 20) is Role.OPERATOR
    assert tokens.find_role("v" * 20) is Role.VIEWER
    assert tokens.find_role("") is tokens.find_role("o" * 19) is None
    assert AccessTokens().find_role("") is None
    assert tokens.are_required
    assert AccessTokens(viewer="v").are_required
    assert not AccessTokens().are_required
    assert "ooo" not in repr(tokens)


VIEWER = Session(actor="Vi", role=Role.VIEWER, expires_at_s=1_000, nonce="v" * 20)


@pytest.mark.parametrize(
    ("same", "session", "csrf", "read_only", "refusal"),
    [
        (True, OPERATOR, True, False, None),
        (False, OPERATOR, True, False, Refusal.ORIGIN),
        (True, OPERATOR, True, True, Refusal.READ_ONLY),
        (True, None, True, False, Refusal.SESSION),
        (True, VIEWER, True, False, Refusal.ROLE),
        (True, OPERATOR, False, False, Refusal.CSRF),
    ],
)
def test_change_needs_everything(
    *, same: bool, session: Session | None, csrf: bool, read_only: bool, refusal: Refusal | None
) -> None:
    found = check_change(
        is_same_origin=same, session=session, has_csrf_token=csrf, read_only=read_only
    )
    assert found is refusal


def test_clients_are_limited_one_by_one() -> None:
    limiter = RateLimiter(RetryBudget(capacity=2, refill_per_s=0.5, earned_per_success=0))
    assert [limiter.admit("a", now_s=10) for _ in range(4)] == [True, True, False, False]
    assert limiter.admit("b", now_s=10)
    assert limiter.admit("a", now_s=12)
    assert not limiter.admit("a", now_s=12)


def test_limiter_forgets_the_oldest_clients() -> None:
    limiter = RateLimiter(RetryBudget(capacity=1, refill_per_s=0.001, earned_per_success=0))
    for number in range(5_000):
        assert limiter.admit(str(number), now_s=0)
    assert limiter.admit("0", now_s=0)
    assert not limiter.admit("4999", now_s=0)
