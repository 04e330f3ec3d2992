import json
import re
import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoyline.previews import preview
from buoyline.previews.binary import binary_digest
from buoyline.previews.diffs import diff_digest
from buoyline.previews.digest import MAX_FACT_CHARS, Digest, common_folder, fact, rows
from buoyline.previews.listings import listing_digest
from buoyline.previews.outlines import outline_digest
from buoyline.previews.pages import page_digest
from buoyline.previews.searches import search_digest
from buoyline.previews.source import visible
from buoyline.tokens import default_counter

READERS: tuple[Callable[[Sequence[str]], Digest | None], ...] = (
    binary_digest,
    diff_digest,
    page_digest,
    search_digest,
    listing_digest,
    outline_digest,
)

DIFF = """\
diff --git a/src/app/main.py b/src/app/main.py
index 1111111..2222222 100644
--- a/src/app/main.py
+++ b/src/app/main.py
@@ -1,4 +1,5 @@ def run():
 one
--- a comment that is taken away
+two
+three
 four
 five
diff --git a/src/app/old.py b/src/app/old.py
deleted file mode 100644
index 1111111..0000000
--- a/src/app/old.py
+++ /dev/null
@@ -1,2 +0,0 @@
-a
-b
diff --git a/src/app/a b.py b/src/app/c d.py
similarity index 100%
rename from src/app/a b.py
rename to src/app/c d.py
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
"""

GO = """\
package main

import (
\t"fmt"
)

// Greeter greets.
type Greeter struct {
\tName string
}

func (g *Greeter) Greet() string {
\tif err := check(); err != nil {
\t\treturn ""
\t}
\treturn fmt.Sprint(g.Name)
}

func main() {
\tg := Greeter{Name: "x"}
\tfmt.Println(g.Greet())
}
"""

PYTHON = '''\
"""A module."""
import os
from typing import Any


class Box:
    """Holds things."""

    def __init__(self) -> None:
        self.items = []

    async def put(self, item: Any) -> None:
        if item:
            self.items.append(item)


def main() -> None:
    for name in os.listdir("."):
        print(name)


if __name__ == "__main__":
    main()
'''

RUST = """\
use std::collections::HashMap;

#[derive(Debug)]
pub struct Store {
    items: HashMap<String, u32>,
}

impl Store {
    pub fn new() -> Self {
        let mut items = HashMap::new();
        Store { items }
    }
}

fn helper(x: u32) -> Result<(), ()> {
    Ok(())
}
"""

TYPESCRIPT = """\
import { a } from "./a";
import type { B } from "./b";

export interface Options {
  name: string;
}

export class Client {
  private readonly url: string;

  async fetch(path: string): Promise<string> {
    const x = await a(path);
    return x as string;
  }
}

export function connect(options: Options): Client {
  return new Client(options);
}

const internal = (x: number) => {
  return x;
};
"""

JAVA = """\
package com.acme;

import java.util.List;

public class Shop {
    private final List<String> items;

    public Shop(List<String> items) {
        this.items = items;
    }

    @Override
    public String toString() {
        return items.toString();
    }
}
"""

RUBY = """\
require 'json'

module Acme
  class Shop < Base
    attr_reader :items

    def initialize(items)
      @items = items
    end

    def open?
      @items.each do |item|
        puts item
      end
    end
  end
end
"""

PHP = """\
<?php
namespace Acme\\Shop;

use Acme\\Base\\Thing;

final class Shop
{
    private $items = [];

    public function add($item)
    {
        $this->items[] = $item;
        return $this;
    }
}
"""

CSHARP = """\
using System;
using System.Collections.Generic;

namespace Acme.Shop
{
    public class Store
    {
        public string Name { get; set; }

        public async Task<int> CountAsync(string name)
        {
            var items = await Load(name);
            return items.Count;
        }
    }
}
"""

C = """\
#include <stdio.h>
#include "list.h"

#define MAX 12

struct node {
    int value;
    struct node *next;
};

static int count(struct node *first)
{
    int n = 0;
    while (first) {
        first = first->next;
        n++;
    }
    return n;
}

int main(void) {
    printf("x");
    return 0;
}
"""

SHELL = """\
#!/bin/bash
set -e

usage() {
  echo "usage: $0"
}

function deploy() {
  local target=$1
  if [ -z "$target" ]; then
    usage
    exit 1
  fi
  echo "$target"
}

deploy "$@"
"""

SQL = """\
CREATE TABLE users (
  id integer PRIMARY KEY,
  name text NOT NULL
);

CREATE OR REPLACE VIEW active_users AS
SELECT id, name
FROM users
WHERE name IS NOT NULL;

INSERT INTO users VALUES (1, 'x');
"""

MARKDOWN = """\
# Title

Some **words**, and a [link](https://example.org).

## Use

```sh
# no heading
```

- one
- two

### Deep

## End
"""


YAML = """\
name: CI
on:
  push:
    branches: [main]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: make
"""

PAGE = """\
<!DOCTYPE html>
<html><head><title>A &amp; B</title>
<style>p { color: red }</style>
<script>var x = "<h1>no heading</h1>";</script></head>
<body><nav><a href="/">Home</a> <a href="/x">X</a></nav>
<h1>Welcome &lt;you&gt;</h1>
<p>This is the first sentence of the page, which is long enough to be taken for its beginning.</p>
<h2>Part <b>one</b></h2>
<table><tr><td><img src="x.png"></td></tr></table><form><input></form>
<!-- <h2>not seen</h2> -->
<h3>Deeper</h3></body></html>
"""


GREP = """\
src/app/main.py:12:def run():
src/app/main.py-13-    pass
src/app/main.py-14-    return
--
src/app/other.py:3:from main import run
src/app/other.py:9:run()
/home/me/src/app/other.py-10-x-20-y
"""

LONG = """\
total 48
-rw-r--r-- 1 me me    120 Jan  2 10:00 a.py
-rw-r--r-- 1 me me    130 Jan  2 10:00 b.py
-rw-r--r-- 1 me me 990000 Jan  2 10:00 core.dump
drwxr-xr-x 2 me me   4096 Jan  2 10:00 src
-rw-r--r-- 1 me me    140 Jan  2 10:00 with a blank.md
lrwxrwxrwx 1 me me      9 Jan  2 10:00 link -> a.py
"""


TEXTS = (
    DIFF, GO, PYTHON, RUST, TYPESCRIPT, JAVA, RUBY, PHP, CSHARP, C, SHELL, SQL, MARKDOWN, YAML, PAGE,
    GREP, LONG,
)  # fmt: skip


ODD = st.text(st.characters(exclude_characters="\n"), max_size=30)


def read(reader: Callable[[Sequence[str]], Digest | None], text: str) -> Digest:
    digest = reader(text.splitlines())
    assert digest is not None
    obeys(digest, len(text.splitlines()))
    return digest


def obeys(digest: Digest, total: int) -> None:
    for row in digest.facts:
        assert row
        assert not row[0].isdigit()
        assert len(row) <= MAX_FACT_CHARS
        assert visible(row) == row
        assert not {"\n", "\t"} & set(row)
    for finding in digest.findings:
        assert 1 <= finding.number <= total
        assert 0 <= finding.weight <= 100
        assert finding.column >= 0
        assert all(1 <= other <= total and other != finding.number for other in finding.similar)


def numbers(digest: Digest, least: float) -> set[int]:
    return {finding.number for finding in digest.findings if finding.weight >= least}


def test_a_diff_says_which_files_it_changes_and_where_each_begins() -> None:
    digest = read(diff_digest, DIFF)
    assert digest.facts[0] == "Diff: 4 files, +2 -3, 1 new, 1 deleted, 1 renamed, 1 binary"
    files = " ".join(digest.facts)
    assert "src/app/main.py +2 -1 :1" in files
    assert "src/app/old.py (deleted) -2 :12" in files
    assert "src/app/c d.py (renamed) :20" in files
    assert "logo.png (binary, new) :24" in files


def test_a_removed_line_that_begins_with_dashes_begins_no_file() -> None:
    assert "src/app/main.py +2 -1" in " ".join(read(diff_digest, DIFF).facts)


def test_removed_lines_make_a_file_and_a_hunk_as_large_as_added_ones() -> None:
    added = "".join(f"+new {number}\n" for number in range(4))
    removed = "".join(f"-old {number}\n" for number in range(9))
    text = (
        f"--- a/grown.py\n+++ b/grown.py\n@@ -1,1 +1,5 @@ def grow():\n x\n{added}"
        f"--- a/cut.py\n+++ b/cut.py\n@@ -1,10 +1,1 @@ def cut():\n x\n{removed}"
    )
    digest = read(diff_digest, text)
    assert "Files by changed lines: cut.py -9 :9, grown.py +4 :1" in digest.facts
    assert "Largest hunks: cut 9 :11, grow 4 :3" in digest.facts
    weights = {finding.number: finding.weight for finding in digest.findings}
    assert weights[11] > weights[3]


def test_a_plain_diff_without_git_is_read() -> None:
    text = "--- old.txt\t2024-01-01\n+++ new.txt\t2024-01-02\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert read(diff_digest, text).facts[0] == "Diff: 1 file, +1 -1"


def test_a_combined_diff_with_conflict_markers_shows_them() -> None:
    head = "diff --cc a.py\nindex 1,2..0\n--- a/a.py\n+++ b/a.py\n@@@ -1,2 -1,2 +1,6 @@@\n  x\n"
    text = head + "++<<<<<<< HEAD\n +a\n++=======\n+ b\n++>>>>>>> other\n"
    digest = read(diff_digest, text)
    assert "with conflict markers" in digest.facts[0]
    assert numbers(digest, 90) == {7, 11}


def test_a_line_that_no_diff_has_is_found_and_the_rest_still_counted() -> None:
    lines = DIFF.splitlines()
    lines.insert(8, "FATAL: the disk is full")
    digest = read(diff_digest, "\n".join(lines))
    assert digest.facts[0].startswith("Diff: 4 files, +2 -3")
    assert numbers(digest, 84) == {9}


def test_a_log_of_patches_counts_its_commits() -> None:
    commit = "commit 0123456789abcdef0123456789abcdef01234567\nAuthor: A <a@example.org>\nDate:   Mon\n\n    Words\n\n"
    digest = read(diff_digest, (commit + DIFF) * 2)
    assert digest.facts[0].startswith("Diff: 4 files (8 changes), +4 -6")
    assert digest.facts[0].endswith("2 commits")


def test_a_coloured_diff_is_read() -> None:
    text = "\n".join(f"\x1b[1m{line}\x1b[m" for line in DIFF.splitlines())
    assert preview(text, 150, default_counter()).startswith("Diff: 4 files, +2 -3")


def test_prose_that_quotes_a_diff_is_none() -> None:
    assert diff_digest([*["Some words."] * 60, *DIFF.splitlines()]) is None


@pytest.mark.parametrize(
    ("text", "language", "names"),
    [
        (GO, "Go", ["type Greeter :8", "(g *Greeter) Greet :12", "main :19"]),
        (PYTHON, "Python", ["class Box :6", "main :17", "put :12"]),
        (RUST, "Rust", ["struct Store :4", "impl Store :8", "helper :15", "new :9"]),
        (TYPESCRIPT, "TypeScript", ["interface Options :4", "class Client :8", "connect :17", "fetch :11"]),
        (JAVA, "Java", ["class Shop :5", "toString :13"]),
        (RUBY, "Ruby", ["module Acme :3", "class Shop :4", "initialize :7", "open? :11"]),
        (PHP, "PHP", ["class Shop :6", "add :10"]),
        (CSHARP, "C#", ["class Store :6", "CountAsync :10"]),
        (C, "C", ["struct node :6", "count :11", "main :21"]),
        (SHELL, "shell", ["usage :4", "deploy :8"]),
        (SQL, "SQL", ["TABLE users :1", "VIEW active_users :6"]),
        (MARKDOWN, "Markdown", ["# Title :1", "## Use :5", "## End :16", "### Deep :14"]),
        (YAML, "YAML", ["name: :1", "on: :2", "jobs: :5"]),
    ],
)
def test_a_source_text_says_its_language_and_what_it_defines(text: str, language: str, names: list[str]) -> None:
    digest = read(outline_digest, text)
    total = len(text.splitlines())
    assert re.fullmatch(rf"(?:Source code \()?{re.escape(language)}(?:,| \(|) ?{total} lines\)", digest.facts[0])
    found = ", ".join(digest.facts[1:])
    for name in names:
        assert name in found
    assert "no heading" not in found


def test_numbers_of_an_outline_are_of_the_lines_and_not_of_their_gutter() -> None:
    gutter = "\n".join(f"{number:6}\u2192{line}" for number, line in enumerate(GO.splitlines(), 1))
    assert read(outline_digest, gutter).facts == read(outline_digest, GO).facts
    digest = read(outline_digest, f"Here is what `cat -n` says:\n{gutter}")
    assert digest.facts[0] == "Source code (Go, 23 lines; numbers here are of the lines; those in them are 1 less)"
    assert "type Greeter :9" in digest.facts[1]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"2024-01-01 12:00:{n:02} INFO worker {n} is done in {n} ms" for n in range(60)),
        json.dumps({"a": [{"b": n} for n in range(40)]}, indent=1),
        "\n".join(f"{n},name {n},{n * 3}" for n in range(50)),
        "\n".join(["It was a dark and stormy night; the rain fell in torrents."] * 20),
        "\n".join(f"ok  \texample.org/pkg/x{n}\t0.{n}s" for n in range(40)),
        "",
        "x",
    ],
)
def test_other_texts_are_of_none_of_these_kinds(text: str) -> None:
    assert [reader(text.splitlines()) for reader in READERS] == [None] * len(READERS)


def test_a_page_says_its_title_its_headings_and_how_it_begins() -> None:
    digest = read(page_digest, PAGE)
    assert digest.facts[0] == "Web page (HTML, 11 lines, 2 links, 1 image, 1 form, 1 table, 1 script): A & B"
    assert digest.facts[1] == "Headings: h1 Welcome <you> :6, h2 Part one :8, h3 Deeper :11"
    assert digest.facts[2].startswith("Text :7: This is the first sentence of the page")
    assert {7, 6, 8, 11} <= numbers(digest, 50)


def test_a_page_below_a_line_of_who_fetched_it_is_a_page() -> None:
    assert read(page_digest, f"Exit code 0\n{PAGE}").facts[1].startswith("Headings: h1 Welcome <you> :7")


def test_a_program_that_holds_a_page_is_no_page() -> None:
    assert page_digest(["import x", *(f'print("{line}")' for line in PAGE.splitlines())]) is None


def test_what_a_search_printed_is_counted_by_file() -> None:
    digest = read(search_digest, GREP)
    assert digest.facts[0] == "Search output: 3 hits and 3 lines around them in 2 files in src/app/"
    assert digest.facts[1] == "Files by hits: other.py 2 :5, main.py 1 :1"


def test_a_search_without_numbers_and_one_with_headings_are_read() -> None:
    plain = "src/a.py:import os\nsrc/a.py:import re\nsrc/b/c.py:import os\nsrc/b/c.py:x\n"
    assert read(search_digest, plain).facts[0] == "Search output: 4 lines in 2 files in src/"
    headed = "src/a.py\n1:import os\n2:import re\n\nsrc/b/c.py\n7:import os\n9:x\n"
    assert read(search_digest, headed).facts[1] == "Files by hits: a.py 2 :2, b/c.py 2 :6"


def test_messages_of_a_compiler_are_told_from_a_search() -> None:
    text = "".join(f"src/x/a{n}.c:{n}:5: warning: unused\n" for n in range(1, 9))
    assert read(search_digest, text).facts[0].startswith("Messages about files: 8 lines in 8 files")


def test_a_long_listing_says_what_is_largest() -> None:
    digest = read(listing_digest, LONG)
    assert digest.facts[0].startswith("Listing (long): 6 entries (5 files, 1 folder)")
    assert "core.dump 990 kB :4" in digest.facts[1]


def test_a_list_of_paths_says_what_lies_where() -> None:
    paths = "\n".join(["./README.md", *(f"./src/m{n}.py" for n in range(8)), *(f"./docs/d{n}.md" for n in range(3))])
    digest = read(listing_digest, paths)
    assert digest.facts == (
        "Listing (paths): 12 entries",
        "By folder: src 8 :2, docs 3 :10, . 1 :1",
        "By ending: .py 8, .md 4",
    )


def test_the_steps_of_a_run_are_no_paths() -> None:
    steps = "\n".join(f"[{n}/40] Building CXX object src/a{n}.o" for n in range(1, 41))
    assert listing_digest(steps.split("\n")) is None


def png() -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + bytes(range(256)) * 20


def test_bytes_are_told_from_text_however_they_were_decoded() -> None:
    for text in (png().decode("utf-8", "replace"), png().decode("utf-8", "surrogateescape"), png().decode("latin-1")):
        digest = binary_digest(text.split("\n"))
        assert digest is not None
        assert digest.facts[0].startswith("Binary data: PNG image, ")
        obeys(digest, text.count("\n") + 1)


def test_what_can_be_read_in_bytes_is_shown() -> None:
    noise = "\x00\x01\x02\ufffd\ufffd" * 40
    digest = read(binary_digest, f"\x7fELF{noise}\x00/lib64/ld-linux-x86-64.so.2\x00{noise}")
    assert digest.facts[1] == 'Longest strings: "/lib64/ld-linux-x86-64.so.2" :1'
    assert digest.facts[0].startswith("Binary data: ELF program")


def test_rows_say_how_much_they_leave_out() -> None:
    assert rows("Files", [], most=2) == []
    listed = rows("Files", [f"some/path/of/a/file_{n}.py :{n}" for n in range(40)], most=2)
    assert len(listed) == 2
    assert all(len(row) <= 190 for row in listed)
    assert re.search(r"; \d+ more$", listed[-1])
    assert common_folder(["src/app/a.py", "src/app/b/c.py"]) == "src/app/"
    assert fact("a\tb\x1b[1m\nc\u202e") == "a b\\x1b[1m\\x0ac\\u202e" or "\x1b" not in fact("a\x1b")


@pytest.mark.parametrize("reader", READERS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_text_breaks_a_reader_and_what_it_says_obeys_the_rules(
    reader: Callable[[Sequence[str]], Digest | None], data: st.DataObject
) -> None:
    pieces = st.sampled_from([line for text in TEXTS for line in text.splitlines()])
    lines = data.draw(st.lists(pieces | ODD | st.tuples(pieces, ODD).map("".join), max_size=40))
    digest = reader(lines)
    if digest is not None:
        obeys(digest, len(lines))


@pytest.mark.parametrize("reader", READERS)
@given(
    place=st.integers(0, len(TEXTS) - 1),
    start=st.integers(0, 20),
    odd=st.text(st.characters(exclude_characters="\n"), max_size=20),
)
@settings(max_examples=100, deadline=None)
def test_a_part_of_a_text_with_an_odd_line_breaks_no_reader(
    reader: Callable[[Sequence[str]], Digest | None], place: int, start: int, odd: str
) -> None:
    lines = TEXTS[place].splitlines()[start:] * 3
    lines.insert(len(lines) // 2, odd)
    digest = reader(lines)
    if digest is not None:
        obeys(digest, len(lines))


HOSTILE = (
    "<a" * 200, "<!--" * 100, "<script>" * 50, "<" * 400, "a-1-" * 100, "at " * 130 + "(", '  File "' * 50,
    "@@ -1 +1 @@",
    "diff --git a b", "{" * 400, "(" * 400, "func (" * 80, "func a" + "(" * 390, "Traceback (most recent call last):",
    "│   " * 100 + "├── a", "a/" * 200, "-rw-r--r-- 1 " + "1 " * 190, "\\x00" * 100,
    "panic: DATA RACE panicked at",
    "    at a(" + "b" * 300 + ":1)",
    "# " * 200, "a: " * 130, " " * 400, "\t" * 400, "x" * 400, "    at " + "a.b" * 130 + "(:1)",
    "at a.Error" * 40, "panicked at " + "a" * 380 + ".rs", "panic: " + "a/" * 190 + ".go:", "a.b: " * 80,
    "│" * 200 + "--",
    "0" * 400, "abc " * 100,
)  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("line", HOSTILE)
def test_work_grows_no_faster_than_a_hostile_text(reader: Callable[[Sequence[str]], Digest | None], line: str) -> None:
    for text in ([line] * 3_000, [line * 150], [*PAGE.splitlines()[:1], line * 150, line]):
        digest = reader(text)
        if digest is not None:
            obeys(digest, len(text))
