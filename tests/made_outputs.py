"""Outputs of tools, made up after real ones, each with the lines that report what went wrong in it."""

import json
import random
from collections.abc import Sequence
from typing import NamedTuple


class Made(NamedTuple):
    """An output.

    Attributes:
        text: All of it.
        reports: Beginnings of the lines that a preview must show.
    """

    text: str
    reports: Sequence[str]


def _made(around: Sequence[str], *blocks: Sequence[str], reports: Sequence[str], is_plain: bool = False) -> Made:
    """Return an output with each of *blocks* somewhere among lines of no interest, of one form alone if it is plain."""
    around = around if is_plain else [line for number, line in enumerate(around) for line in (line, *_chatter(number))]
    step = len(around) // (len(blocks) + 1)
    lines = list[str]()
    for place, block in enumerate(blocks):
        lines += [*around[place * step : (place + 1) * step], *block]
    lines += around[len(blocks) * step :]
    for report in reports:
        assert any(line.startswith(report) for line in lines), report
    return Made("\n".join(lines) + "\n", reports)


def _chatter(number: int) -> Sequence[str]:
    """Return a line now and then that is unlike all others and says nothing: runs are full of them."""
    if number % 4 or not number:
        return ()
    rng = random.Random(number)  # noqa: S311 - no secret is drawn
    words = ["".join(rng.choices("abdegiklmnoprstuv", k=rng.randint(4, 9))) for _ in range(rng.randint(3, 9))]
    return (
        f"{rng.choice(['', '  ', '> ', '* ', '== '])}{' '.join(words)}{rng.choice(['', '.', ' ...', ' ok', ': 7'])}",
    )


def _numbered(form: str, count: int = 300) -> list[str]:
    return [form.format(n, n % 17, n * 7919 % 1009) for n in range(count)]


PYTEST = _made(
    _numbered("tests/test_orders.py::test_case_{0} PASSED"),
    [
        "=================================== FAILURES ===================================",
        "______________________________ test_total_of_cart ______________________________",
        "    def test_total_of_cart():",
        "        cart = Cart([Item('tea', 3)])",
        ">       assert cart.total() == 12",
        "E       assert 9 == 12",
        "E        +  where 9 = total()",
        "tests/test_cart.py:41: AssertionError",
    ],
    [
        "=========================== short test summary info ============================",
        "FAILED tests/test_cart.py::test_total_of_cart - assert 9 == 12",
        "ERROR tests/test_stock.py - ModuleNotFoundError: No module named 'stock'",
        "============ 1 failed, 300 passed, 1 error in 4.20s ============",
    ],
    reports=[
        "E       assert 9 == 12",
        "tests/test_cart.py:41: AssertionError",
        "FAILED tests/test_cart.py::test_total",
        "ERROR tests/test_stock.py - ModuleNotFoundError",
        "============ 1 failed",
    ],
)

GO_TEST = _made(
    _numbered("ok  \texample.com/shop/p{0}\t0.{2}s"),
    [
        "--- FAIL: TestTransfer (0.02s)",
        "    transfer_test.go:58: opened account 4",
        "    transfer_test.go:71: balance after transfer: got 90, want 100",
        "--- FAIL: TestClose (0.00s)",
        "    close_test.go:12: the ledger is still open",
        "FAIL",
        "FAIL\texample.com/shop/bank\t0.031s",
    ],
    ["# example.com/shop/cmd", "cmd/main.go:14:2: undefined: openLedger", "exit status 1"],
    reports=[
        "--- FAIL: TestTransfer",
        "    transfer_test.go:71: balance",
        "--- FAIL: TestClose",
        "    close_test.go:12: the ledger",
        "FAIL\texample.com/shop/bank",
        "cmd/main.go:14:2: undefined: openLedger",
        "exit status 1",
    ],
)

GO_TEST_VERBOSE = _made(
    [
        line
        for n in range(120)
        for line in (
            f"=== RUN   TestCase{n}",
            f"    case_test.go:{n + 9}: expected state reached",
            f"--- PASS: TestCase{n} (0.00s)",
        )
    ],
    [
        "=== RUN   TestTransfer",
        "    transfer_test.go:71: balance should be 100",
        "--- FAIL: TestTransfer (0.02s)",
    ],
    reports=["    transfer_test.go:71: balance should be 100", "--- FAIL: TestTransfer"],
)

CARGO = _made(
    _numbered("   Compiling crate-{0} v0.{1}.{2}"),
    [
        "error[E0308]: mismatched types",
        "  --> src/store/mod.rs:87:24",
        "   |",
        "87 |     let size: usize = name;",
        "   |               -----   ^^^^ expected `usize`, found `&str`",
        "error[E0425]: cannot find value `limit` in this scope",
        "  --> src/main.rs:9:13",
    ],
    ["thread 'store::tests::keeps_order' panicked at src/store/mod.rs:140:9:", "assertion `left == right` failed",
     "  left: [1, 3, 2]", " right: [1, 2, 3]"],
    ['error: could not compile `shop` (bin "shop") due to 2 previous errors'],
    reports=[
        "error[E0308]: mismatched types",
        "  --> src/store/mod.rs:87:24",
        "error[E0425]: cannot find value",
        "  --> src/main.rs:9:13",
        "thread 'store::tests::keeps_order' panicked",
        "  left: [1, 3, 2]",
        " right: [1, 2, 3]",
        "error: could not compile",
    ],
)  # fmt: skip

TSC = _made(
    _numbered("TSFILE: /app/dist/module{0}.js"),
    [
        "src/cart.ts(12,5): error TS2322: Type 'string' is not assignable to type 'number'.",
        "src/cart.ts(40,19): error TS2554: Expected 2 arguments, but got 1.",
        "src/view/list.tsx:8:3 - error TS2741: Property 'key' is missing in type '{}'.",
    ],
    ["Found 3 errors in 2 files."],
    reports=[
        "src/cart.ts(12,5): error TS2322",
        "src/cart.ts(40,19): error TS2554",
        "src/view/list.tsx:8:3",
        "Found 3 e",
    ],
)

GCC = _made(
    _numbered("[{0}/300] Building C object CMakeFiles/shop.dir/part{0}.c.o"),
    [
        "/src/ring.c: In function 'ring_push':",
        "/src/ring.c:88:14: error: 'struct ring' has no member named 'tail'",
        "/src/ring.c:91:9: warning: unused variable 'n' [-Wunused-variable]",
    ],
    [
        "/usr/bin/ld: main.o: in function `main': main.c:(.text+0x1f): undefined reference to `ring_free'",
        "collect2: error: ld returned 1 exit status",
        "make[2]: *** [CMakeFiles/shop.dir/build.make:97: shop] Error 1",
    ],
    reports=[
        "/src/ring.c:88:14: error:",
        "/src/ring.c:91:9: warning:",
        "/usr/bin/ld: main.o",
        "collect2: error",
        "make[2]: ***",
    ],
)

JEST = _made(
    _numbered("PASS src/part{0}.test.ts"),
    [
        "FAIL src/cart.test.ts",
        "  \u25cf Cart \u203a adds up what is in it",
        "    expect(received).toBe(expected) // Object.is equality",
        "    Expected: 12",
        "    Received: 9",
        "      at Object.<anonymous> (src/cart.test.ts:22:28)",
    ],
    ["Tests:       1 failed, 300 passed, 301 total"],
    reports=[
        "FAIL src/cart.test.ts",
        "  \u25cf Cart \u203a adds up",
        "    Expected: 12",
        "    Received: 9",
        "Tests:       1 failed",
    ],
)

MAVEN = _made(
    _numbered("[INFO] Downloaded from central: https://repo.example/m2/part-{0}.jar ({2} kB)"),
    [
        "[ERROR] /app/src/main/java/shop/Cart.java:[12,8] cannot find symbol",
        "[ERROR]   symbol:   class Money",
        "[ERROR] shop.CartTest.addsUp -- Time elapsed: 0.01 s <<< FAILURE!",
        "org.opentest4j.AssertionFailedError: expected: <12> but was: <9>",
    ],
    ["[INFO] BUILD FAILURE"],
    reports=[
        "[ERROR] /app/src/main/java/shop/Cart.java:[12,8]",
        "[ERROR]   symbol:   class Money",
        "[ERROR] shop.CartTest.addsUp",
        "org.opentest4j.AssertionFailedError: expected",
        "[INFO] BUILD FAILURE",
    ],
)

DOCKER = _made(
    _numbered("#{1} {0}.1 Get:{0} http://deb.example/debian stable/main part{0} [{2} kB]"),
    [
        "#9 41.20 E: Unable to locate package libfoo-dev",
        '#9 ERROR: process "/bin/sh -c apt-get install libfoo-dev" did not complete successfully: exit code: 100',
    ],
    ["Error response from daemon: manifest for shop:9 not found"],
    reports=["#9 41.20 E: Unable to locate", "#9 ERROR: process", "Error response from daemon"],
)

KUBECTL = _made(
    _numbered("shop-web-{0}   1/1   Running   0   {1}d"),
    ["shop-db-0   0/1   CrashLoopBackOff   17 (2m ago)   61m", "shop-job-9   0/1   OOMKilled   0   5m"],
    ['Error from server (NotFound): deployments.apps "shop-api" not found'],
    reports=["shop-db-0   0/1   CrashLoopBackOff", "shop-job-9   0/1   OOMKilled", "Error from server (NotFound)"],
)

PYTHON = _made(
    _numbered("2026-03-01 10:00:00 INFO import: row {0} of part {1} is in"),
    [
        "Traceback (most recent call last):",
        '  File "/app/shop/load.py", line 31, in load',
        "    return parse(row)",
        '  File "/app/shop/parse.py", line 77, in parse',
        "    return int(row['size'])",
        '  File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode',
        "    raise JSONDecodeError(s)",
        "ValueError: invalid literal for int() with base 10: 'n/a'",
    ],
    reports=["ValueError: invalid literal"],
)

NODE = _made(
    _numbered("GET /items/{0} 200 {1} ms"),
    [
        "TypeError: Cannot read properties of undefined (reading 'size')",
        "    at sizeOf (/app/src/cart.js:14:22)",
        "    at Layer.handle (/app/node_modules/express/lib/router/layer.js:95:5)",
    ],
    ['GET /items/9 HTTP/1.1" 503 19', "HTTP/1.1 502 Bad Gateway"],
    reports=[
        "TypeError: Cannot read",
        "    at sizeOf (/app/src/cart.js:14:22)",
        'GET /items/9 HTTP/1.1" 503',
        "HTTP/1.1 502",
    ],
)

SQL = _made(
    _numbered("INSERT 0 {1}"),
    [
        'psql:load.sql:88: ERROR:  duplicate key value violates unique constraint "items_pkey"',
        "DETAIL:  Key (id)=(7) already exists.",
    ],
    ["ERROR 1064 (42000) at line 3: You have an error in your SQL syntax", "ORA-00942: table or view does not exist"],
    reports=["psql:load.sql:88: ERROR:", "ERROR 1064 (42000)", "ORA-00942: table"],
)

CHINESE = _made(
    _numbered(
        "2026-03-01 10:00:00 \u4fe1\u606f \u8ba2\u5355 {0} \u5df2\u5904\u7406\uff0c\u7528\u65f6 {1} \u6beb\u79d2"
    ),
    ["2026-03-01 10:07:12 \u4e25\u91cd \u6570\u636e\u5e93\u8fde\u63a5\u8d85\u65f6\uff1a10.0.0.7"],
    [
        "2026-03-01 10:07:13 \u9519\u8bef \u65e0\u6cd5\u5199\u5165\u8ba2\u5355 88",
        "\u6784\u5efa\u5931\u8d25\uff0c\u9000\u51fa\u7801 2",
    ],
    reports=["2026-03-01 10:07:12 \u4e25\u91cd", "2026-03-01 10:07:13 \u9519\u8bef", "\u6784\u5efa\u5931\u8d25"],
)

JSON_LOG = _made(
    [json.dumps({"time": f"10:00:{n % 60:02}", "level": "info", "error": None, "ms": n % 17}) for n in range(300)],
    [json.dumps({"time": "10:05:00", "level": "error", "error": "no route to 10.0.0.7", "ms": 3})],
    [json.dumps({"time": "10:06:00", "level": "fatal", "error": None, "ms": 4})],
    reports=['{"time": "10:05:00", "level": "error"', '{"time": "10:06:00", "level": "fatal"'],
    is_plain=True,
)

XUNIT = _made(
    ['<testsuite name="shop" failures="0" errors="0">', *_numbered('  <testcase name="case{0}" time="0.{2}"/>')],
    [
        '  <testcase name="total_of_cart" time="0.1">',
        '    <failure message="expected 12 but was 9" type="AssertionError">cart.py:41</failure>',
        "  </testcase>",
    ],
    ['    <error type="KeyError" message="stock">stock.py:7</error>'],
    reports=['    <failure message="expected 12', '    <error type="KeyError"'],
    is_plain=True,
)  # fmt: skip

CSV = _made(
    ["id,state,took,note", *_numbered("{0},done,{1},")],
    ["300,failed,9,quota"],
    ["301,error,1,refused"],
    reports=["300,failed,9", "301,error,1"],
    is_plain=True,
)

HTML = _made(
    ["<html><head><title>Report</title></head><body><table>", *_numbered("<tr><td>case {0}</td><td>passed</td></tr>")],
    ['<tr class="failed"><td>total of cart</td><td>AssertionError: 9 is not 12</td></tr>'],
    ["<h2>502 Bad Gateway</h2>"],
    reports=['<tr class="failed">', "<h2>502 Bad Gateway</h2>"],
)

OUTPUTS = {name.lower(): made for name, made in list(globals().items()) if isinstance(made, Made)}
