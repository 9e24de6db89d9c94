"""Mutation sites of Rust source: places where a small change should make a test fail, and the changed code.

It uses tokens, not a parser: the sources are formatted by rustfmt, so a binary operator has a space on both sides, and
the brackets of generics have none. Changes that do not compile are dropped later.
"""

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<raw>b?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<string>b?"(?:\\.|[^"\\])*")
  | (?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\])')
  | (?P<lifetime>'[A-Za-z_]\w*)
  | (?P<number>\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?(?:_?(?:[iu](?:8|16|32|64|128|size)|f32|f64))?|0x[\da-fA-F_]+)
  | (?P<word>\$?[A-Za-z_]\w*)
  | (?P<mark><<=|>>=|\.\.\.|\.\.=|=>|->|::|==|!=|<=|>=|&&|\|\||\+=|-=|\*=|/=|%=|\^=|&=|\|=|<<|>>|\.\.|[-+*/%^!&|=<>@.,;:\#$?~()\[\]{}])
    """,
    re.X | re.S,
)

PAIRS = {"(": ")", "[": "]", "{": "}"}
PRECEDENCE = {"*": 9, "/": 9, "%": 9, "+": 8, "-": 8, "<<": 7, ">>": 7, "&": 6, "^": 5, "|": 4}
PRECEDENCE |= dict.fromkeys(["==", "!=", "<", ">", "<=", ">="], 3) | {"&&": 2, "||": 1}
STOPS = {"let", "if", "while", "match", "return", "in", "else", "break", "move", "for", "loop", "as_", "ref", "mut", "unsafe"}
QUIET = {"bail", "err", "assert", "assert_eq", "debug_assert", "debug_assert_eq", "panic", "format", "println", "eprintln"}
QUIET |= {"write", "writeln", "unreachable", "options", "kernel", "from_f64", "concat", "matches", "error", "sample", "samples"}

# For each operator, the kind of the change and the replacement.
OPERATORS = {
    "+": ("sign", "-"), "-": ("sign", "+"), "*": ("factor", "/"), "/": ("factor", "*"), "%": ("factor", "/"),
    "<": ("comparison", "<="), "<=": ("comparison", "<"), ">": ("comparison", ">="), ">=": ("comparison", ">"),
    "==": ("comparison", "!="), "!=": ("comparison", "=="), "&&": ("logic", "||"), "||": ("logic", "&&"),
}
METHODS = {
    "add": ("sign", "sub"), "sub": ("sign", "add"), "mul": ("factor", "div"), "div": ("factor", "mul"),
    "min": ("call", "max"), "max": ("call", "min"), "lt": ("comparison", "le"), "le": ("comparison", "lt"),
    "gt": ("comparison", "ge"), "ge": ("comparison", "gt"), "eq": ("comparison", "ne"), "ne": ("comparison", "eq"),
    "sin": ("call", "cos"), "cos": ("call", "sin"), "sinh": ("call", "cosh"), "cosh": ("call", "sinh"),
    "floor": ("call", "ceil"), "ceil": ("call", "floor"), "any": ("logic", "all"), "all": ("logic", "any"),
    "is_some": ("logic", "is_none"), "is_none": ("logic", "is_some"), "wrapping_add": ("sign", "wrapping_sub"),
    "wrapping_sub": ("sign", "wrapping_add"), "wrapping_mul": ("factor", "wrapping_add"), "first": ("call", "last"),
    "last": ("call", "first"), "saturating_sub": ("sign", "wrapping_add"), "exp": ("call", "exp_m1"),
    "div_ceil": ("call", "div_euclid"), "ln": ("call", "log2"),
}
# Calls that are replaced by their receiver `{}`.
DROPPED = {"neg": "({}).clone()", "conj": "({}).clone()", "relu": "({}).clone()", "rev": "({})", "abs": "({}).clone()",
           "sqrt": "({}).clone()"}


@dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass
class Site:
    file: str
    start: int
    end: int
    line: int
    kind: str
    original: str
    mutated: str
    function: str
    op: str | None


def tokens(source):
    at, found = 0, []
    while at < len(source):
        if source[at].isspace():
            at += 1
            continue
        match = TOKEN.match(source, at)
        if match is None:
            raise ValueError(f"no token at {at}: {source[at:at + 20]!r}")
        if match.lastgroup != "comment" and match["comment"] is None:
            kind = next(k for k in ("raw", "string", "char", "lifetime", "number", "word", "mark") if match[k] is not None)
            found.append(Token(kind, match.group(), at, match.end()))
        at = match.end()
    return found


def partners(all_tokens):
    """The position of the matching bracket for each bracket."""
    stack, other = [], {}
    for at, token in enumerate(all_tokens):
        if token.kind == "mark" and token.text in PAIRS:
            stack.append(at)
        elif token.kind == "mark" and token.text in ")]}":
            opening = stack.pop()
            other[opening], other[at] = at, opening
    return other


class File:
    def __init__(self, name, source):
        self.name, self.source = name, source
        self.tokens = tokens(source)
        self.other = partners(self.tokens)
        self.functions = {}
        self.usable = [None] * len(self.tokens)
        self.mark()

    def text(self, first, last):
        return self.source[self.tokens[first].start : self.tokens[last].end]

    def is_mark(self, at, *texts):
        return 0 <= at < len(self.tokens) and self.tokens[at].kind != "string" and self.tokens[at].text in texts

    def mark(self):
        """Marks each token with its function, and with whether it may be changed."""
        at, end = 0, len(self.tokens)
        skipped_until, pending_test, op = -1, False, None
        while at < end:
            token = self.tokens[at]
            if self.is_mark(at, "#") and (self.is_mark(at + 1, "[") or self.is_mark(at + 2, "[")):
                bracket = at + 1 if self.is_mark(at + 1, "[") else at + 2
                text = self.text(bracket, self.other[bracket])
                if re.search(r"unit_test|cfg\((test|feature = \"samples\"|all\(test)|feature = \"cuda\"", text):
                    pending_test = True
                if re.match(r"\[op\b", text):
                    op = True
                at = self.other[bracket] + 1
                continue
            if token.text == "macro_rules" and self.is_mark(at + 1, "!"):
                at = self.other[at + 3] + 1
                continue
            if token.text in ("mod", "fn", "struct", "enum", "impl", "trait", "use", "const", "static", "type", "thread_local"):
                if pending_test:
                    at = self.item_end(at) + 1
                    pending_test, op = False, None
                    continue
            if token.text == "const" and self.tokens[at + 1].kind == "word" and self.tokens[at + 1].text not in ("fn", "unsafe"):
                at = self.item_end(at) + 1
                continue
            if token.text == "static" and self.tokens[at + 1].text != "move":
                last = self.item_end(at)
                name = self.tokens[at + 1].text
                bar = next((i for i in range(at, last) if self.is_mark(i, "|") ), None)
                if bar is not None:
                    for i in range(bar, last):
                        self.usable[i] = (name, None)
                at = last + 1
                continue
            if token.text == "fn" and self.tokens[at + 1].kind == "word":
                name = self.tokens[at + 1].text
                body = self.body(at)
                if body is None:
                    at, op = self.item_end(at) + 1, None
                    continue
                constant = any(t.text == "const" for t in self.tokens[max(0, at - 3) : at])
                if not constant:
                    for i in range(body + 1, self.other[body]):
                        self.usable[i] = (name, name if op else None)
                    self.unuse(body + 1, self.other[body])
                at, op = self.other[body] + 1, None
                continue
            at += 1

    def unuse(self, first, last):
        """Excludes tokens in a function that must not be changed: constants, messages, attributes, array types."""
        at = first
        while at < last:
            token = self.tokens[at]
            stop = None
            if self.is_mark(at, "#") and self.is_mark(at + 1, "["):
                stop = self.other[at + 1]
            elif token.text in ("const", "static", "fn", "struct", "impl", "use") and self.tokens[at + 1].text != "move":
                if token.text in ("const", "use"):
                    stop = self.item_end(at)
                elif token.text == "static" and self.tokens[at + 1].kind == "word":
                    bar = next((i for i in range(at, self.item_end(at)) if self.is_mark(i, "|")), None)
                    stop = bar if bar is not None else self.item_end(at)
                elif token.text == "fn" and self.tokens[at + 1].kind == "word":
                    stop = self.body(at) or at
                elif token.text == "impl":
                    stop = next((i for i in range(at, last) if self.is_mark(i, "{", ",", ")", ";", "=")), at)
            elif token.kind == "word" and token.text in QUIET and self.is_mark(at + 1, "!"):
                stop = self.other[at + 2]
            elif token.text == "macro_rules":
                stop = self.other[at + 3]
            elif self.is_mark(at, "["):
                close = self.other[at]
                semicolon = next((i for i in self.level(at, close) if self.is_mark(i, ";")), None)
                if semicolon is not None:
                    for i in range(semicolon, close + 1):
                        self.usable[i] = None
            if stop is not None:
                for i in range(at, stop + 1):
                    self.usable[i] = None
                at = stop
            at += 1

    def level(self, opening, closing):
        at = opening + 1
        while at < closing:
            yield at
            at = self.other[at] + 1 if self.is_mark(at, *PAIRS) else at + 1

    def item_end(self, at):
        while at < len(self.tokens):
            if self.is_mark(at, ";"):
                return at
            if self.is_mark(at, "{"):
                close = self.other[at]
                # A constant or `use` ends at its semicolon.
                if self.is_mark(close + 1, ";"):
                    return close + 1
                return close
            at = self.other[at] + 1 if self.is_mark(at, "(", "[") else at + 1
        return len(self.tokens) - 1

    def body(self, at):
        while at < len(self.tokens):
            if self.is_mark(at, "{"):
                return at
            if self.is_mark(at, ";"):
                return None
            at = self.other[at] + 1 if self.is_mark(at, "(", "[") else at + 1
        return None

    def ends_operand(self, at):
        token = self.tokens[at]
        if token.kind == "word":
            return token.text not in STOPS
        return token.kind in ("number", "string", "char", "raw") or token.text in (")", "]", "?")

    def binary(self, at):
        """Whether a token is a binary operator: rustfmt puts spaces around it."""
        token = self.tokens[at]
        return (
            token.kind == "mark"
            and token.text in PRECEDENCE
            and at > 0
            and self.source[token.start - 1].isspace()
            and self.source[token.end].isspace()
            and self.ends_operand(at - 1)
        )

    def left(self, at, precedence):
        """The first token of the operand that ends before `at`."""
        first = None
        i = at - 1
        while i >= 0:
            token = self.tokens[i]
            if self.is_mark(i, ")", "]"):
                i = self.other[i]
            elif token.kind in ("number", "string", "char", "raw"):
                pass
            elif token.kind == "word":
                if token.text in STOPS:
                    break
            elif token.text in (".", "::", "?"):
                pass
            elif token.text in (">", "<") and not self.binary(i):
                pass
            elif token.text == "!" and self.is_mark(i + 1, "(", "[", "{") and self.tokens[i - 1].kind == "word":
                pass
            elif token.text in ("-", "*", "&", "!", "&&") and not self.binary(i):
                pass
            elif self.binary(i) and PRECEDENCE[token.text] >= precedence and token.text != "|":
                pass
            elif token.text in ("(", "[", "{", ",", ";", "=", "=>", "+=", "-=", "*=", "/=", "&&", "||", "..", "..=") or (
                self.binary(i) and token.text != "|"
            ):
                break
            elif token.text == "|" and not self.source[token.end - 2].isspace():
                break  # the end of a closure's arguments
            else:
                return None
            first = i
            i -= 1
        return first

    def right(self, at, precedence):
        """The last token of the operand that begins after `at`."""
        last = None
        i = at + 1
        while i < len(self.tokens):
            token = self.tokens[i]
            prefix = last is None
            if self.is_mark(i, "(", "["):
                i = self.other[i]
            elif token.kind in ("number", "string", "char", "raw"):
                pass
            elif token.kind == "word":
                if token.text in ("else", "in"):
                    break
                if token.text in STOPS:
                    return None
            elif token.text in (".", "::", "?"):
                pass
            elif prefix and token.text in ("-", "*", "&", "!"):
                i += 1
                continue
            elif token.text in ("<", ">") and not self.binary(i):
                pass
            elif self.binary(i):
                if token.text == "|" or PRECEDENCE[token.text] <= precedence:
                    break
                inner = self.right(i, PRECEDENCE[token.text])
                if inner is None:
                    return None
                i = inner
            elif token.text in (")", "]", "}", "{", ",", ";", "=>", "..", "..="):
                break
            else:
                return None
            last = i
            i += 1
        return last

    def receiver(self, dot):
        """The first token of the postfix chain that ends before a dot."""
        i, first = dot - 1, None
        while i >= 0:
            token = self.tokens[i]
            if self.is_mark(i, ")", "]"):
                i = self.other[i]
                first = i
            elif token.kind in ("word", "number"):
                if token.text in STOPS:
                    return first
                first = i
                if not self.is_mark(i - 1, ".", "::"):
                    return first
            elif token.text in (".", "::", "?"):
                pass
            elif token.text == ">" and not self.binary(i):
                return None
            elif token.text == "}":
                return None
            else:
                return first
            i -= 1
        return first

    def site(self, first, last, kind, mutated, at):
        start, end = self.tokens[first].start, self.tokens[last].end
        original = self.source[start:end]
        if "//" in original or "let " in original or len(original) > 600 or any(self.usable[i] is None for i in range(first, last + 1)):
            return None
        function, op = self.usable[at]
        line = self.source.count("\n", 0, self.tokens[at].start) + 1
        return Site(self.name, start, end, line, kind, original, mutated, function, op)

    def sites(self):
        for at, token in enumerate(self.tokens):
            if self.usable[at] is None:
                continue
            made = []
            if token.kind == "mark" and token.text in OPERATORS and self.binary(at):
                kind, other = OPERATORS[token.text]
                first, last = self.left(at, PRECEDENCE[token.text]), self.right(at, PRECEDENCE[token.text])
                if first is not None and last is not None:
                    a, b = self.text(first, at - 1), self.text(at + 1, last)
                    made.append(self.site(first, last, kind, f"{a} {other} {b}", at))
                    if token.text == "*":
                        made.append(self.site(first, last, "dropped factor", a, at))
                    if token.text in "-/":
                        made.append(self.site(first, last, "swapped", f"({b}) {token.text} ({a})", at))
            elif token.kind == "mark" and token.text in ("+=", "-=", "*=", "/=") and self.ends_operand(at - 1):
                first = self.left(at, 0)
                last = next((i - 1 for i in range(at, len(self.tokens)) if self.is_mark(i, ";", "}")), None)
                if first is not None and last is not None and self.is_mark(last + 1, ";") and not any(
                    self.is_mark(i, "{") for i in range(at, last)
                ) and self.is_mark(first - 1, ";", "{", "}"):
                    other = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}[token.text]
                    made.append(self.site(first, last, "sign", f"{self.text(first, at - 1)} {other} {self.text(at + 1, last)}", at))
            elif self.is_mark(at, ".") and at + 2 < len(self.tokens) and self.is_mark(at + 2, "("):
                name, close = self.tokens[at + 1].text, self.other[at + 2]
                if name in METHODS or name in DROPPED:
                    first = self.receiver(at)
                    if first is not None:
                        got, args = self.text(first, at - 1), self.text(at + 2, close)
                        if name in METHODS:
                            kind, other = METHODS[name]
                            made.append(self.site(first, close, kind, f"{got}.{other}{args}", at))
                        if name in ("mul", "div", "add", "sub") and self.is_mark(close + 1, "?"):
                            made.append(self.site(first, close + 1, "dropped factor", f"({got}).clone()", at))
                        if name in DROPPED:
                            last = close + 1 if self.is_mark(close + 1, "?") else close
                            made.append(self.site(first, last, "dropped call", DROPPED[name].format(got), at))
            elif token.kind == "mark" and token.text == "-" and not self.binary(at) and self.is_mark(
                at - 1, "(", ",", "=", "{", ";", "*", "/"
            ):
                last = self.right(at, 10)
                if last is not None:
                    made.append(self.site(at, last, "sign", self.text(at + 1, last), at))
            elif token.kind == "number" and (
                (at > 0 and (self.binary(at - 1) or (at + 1 < len(self.tokens) and self.binary(at + 1)))) or self.argument(at)
            ) and not self.is_mark(at - 1, "."):
                value = re.match(r"(\d[\d_]*)(\.\d[\d_]*)?(.*)", token.text)
                if value:
                    whole, fraction, suffix = value.groups()
                    number = int(whole.replace("_", "")) + 1
                    made.append(self.site(at, at, "constant", f"{number}{fraction or ''}{suffix}", at))
            yield from (one for one in made if one is not None)

    def argument(self, at):
        """Whether a number is an argument of a method call."""
        i = at - 1
        while i >= 0 and not self.is_mark(i, "(", "[", "{", ";"):
            i = self.other[i] - 1 if self.is_mark(i, ")", "]", "}") else i - 1
        return (
            i > 1 and self.is_mark(i, "(") and self.tokens[i - 1].kind == "word" and self.is_mark(i - 2, ".")
            and self.is_mark(at - 1, "(", ",") and self.is_mark(at + 1, ")", ",")
        )
