"""Sound files and texts made unsound, the same way for the same random numbers."""

import re

TOKEN = re.compile(rb'"[^"]*"|-?[0-9][0-9.eE+_-]*|[A-Za-z_]+|[\[\]{},:=]')
HOSTILE = [
    *(b"0", b"-1", b"1", b"2", b"7", b"1e18", b"1e999", b"-1e400", b"1e999999", b"1000000000000000000", b"9" * 400),
    *(b"9223372036854775807", b"18446744073709551616", b"0.1", b"1e-320", b"NaN", b"Infinity", b"-Infinity", b"nan"),
    *(b"null", b"true", b"false", b'""', b'"x"', b"[]", b"{}", b"[[]]", b"[1,2]", b'{"a":1}', b"[" * 3000, b"\xff"),
    *(b'"1e400GB"', b'"1e999999"', b'"/etc/passwd"', b'"../../x"', b'"\\u0000"', b'"[/nope]"', b'"|O"', b'"O"'),
    *(b"-9223372036854775808", b'"revolve:99999999999999999"', b'"bounded:1e-400"', b'"\\ud800"', b'"<f99"'),
]
"""What stands where something sound stood."""
VALUES = b'"-0123456789nt'
"""What values begin with."""
WORDS = [0, 1, 2, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def mutated_text(text, random):
    """Replace, remove, repeat or move a few tokens of a text."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        spans = [match.span() for match in TOKEN.finditer(text)]
        if not spans:
            return text + random.choice(HOSTILE)
        # A value in the place of another leaves a text that can be parsed.
        values = [(i, j) for i, j in spans if text[i] in VALUES and text[j : j + 1] != b":"]
        is_value = values and random.random() < 0.8
        start, stop = random.choice(values if is_value else spans)
        kind = 0 if is_value else random.randrange(6)
        if kind < 3:
            new = random.choice(HOSTILE)
        elif kind == 3:
            new = b""
        elif kind == 4:
            new = text[start:stop] * 2
        else:
            other = random.choice(spans)
            new = text[other[0] : other[1]]
        text = text[:start] + new + text[stop:]
    return text


def mutated_bytes(data, random):
    """Change bits, bytes and whole words, or cut, repeat and add some bytes."""
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        if not data:
            break
        # Headers are where the meaning is: half of all changes are among the first bytes.
        at = random.randrange(min(len(data), random.choice((16, 128, 512, len(data)))))
        kind = random.randrange(7)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at] = random.randrange(256)
        elif kind < 4:
            width, order = random.choice((2, 4, 8)), random.choice(("little", "big"))
            word = (random.choice(WORDS) % 2 ** (8 * width)).to_bytes(width, order)
            data[at : at + width] = word[: len(data) - at]
        elif kind == 4:
            del data[at:]
        elif kind == 5:
            del data[at : at + random.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + random.randrange(1, 65)]
    return bytes(data)


def mutated(data, random):
    """Make a sound input unsound: as text where it is text, as bytes now and then."""
    is_text = b"\0" not in data
    return (mutated_text if is_text and random.random() < 0.85 else mutated_bytes)(data, random)


def mutated_body(data, random):
    """Leave the first line as it is."""
    first, _, rest = data.partition(b"\n")
    return first + b"\n" + mutated(rest, random)


def mutated_parts(data, random):
    """Take the first line for text and the rest for bytes; change either, or both."""
    first, _, rest = data.partition(b"\n")
    which = random.randrange(3)
    first = mutated_text(first, random) if which != 0 else first
    return first + b"\n" + (mutated_bytes(rest, random) if which != 1 else rest)
