"""Delimiters, line ends, quotes, escapes and encodings."""

import gzip
from collections.abc import Iterator

from files.corpus.case import Case, Style, write_table
from files.corpus.tables import ASCII_ORDERS, COMPACT_ORDERS, ORDER_COLUMNS, ORDERS, PART_COLUMNS, PARTS, PLAIN_ORDERS
from files.test_compression import zipped, zstd_compressed

LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
DELIMITERS = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "pipe": "|",
    "comma-blank": ", ",
    "semicolon-blank": "; ",
    "two-pipes": "||",
    "two-colons": "::",
    "tilde": "~",
    "caret": "^",
    "unit-separator": "\x1f",
}


def list_dialect_cases() -> Iterator[Case]:
    for end_name, end in LINE_ENDS.items():
        for name, delimiter in DELIMITERS.items():
            style = Style(delimiter=delimiter, line_end=end)
            yield Case(f"{name}-{end_name}.csv", write_table(ORDER_COLUMNS, ORDERS, style), ORDER_COLUMNS, ORDERS)
        for name, delimiter in {"space": " ", "aligned-blanks": "   ", "colon": ":"}.items():
            data = write_table(ORDER_COLUMNS, COMPACT_ORDERS, Style(delimiter=delimiter, line_end=end))
            yield Case(f"{name}-{end_name}.txt", data, ORDER_COLUMNS, COMPACT_ORDERS)
    yield from _list_quote_cases()
    yield from _list_line_cases()
    yield from _list_encoding_cases()
    yield from _list_compression_cases()


def _list_quote_cases() -> Iterator[Case]:
    for name, delimiter in {"comma": ",", "semicolon": ";", "tab": "\t"}.items():
        for kind, style in {
            "all-quoted": Style(delimiter, quotes_all=True),
            "all-single-quoted": Style(delimiter, quote="'", quotes_all=True),
            "backslash": Style(delimiter, escape="\\", quotes_all=True),
            "backslash-some": Style(delimiter, escape="\\"),
        }.items():
            yield Case(f"{kind}-{name}.csv", write_table(ORDER_COLUMNS, ORDERS, style), ORDER_COLUMNS, ORDERS)
    many_lines = [[*row[:1], row[1] + "\nsecond line, " + row[2], *row[2:]] for row in ORDERS]
    yield Case("line-breaks.csv", write_table(ORDER_COLUMNS, many_lines, Style()), ORDER_COLUMNS, many_lines)
    crlf = [[cell.replace("\n", "\r\n") for cell in row] for row in many_lines]
    yield Case("line-breaks-crlf.csv", write_table(ORDER_COLUMNS, crlf, Style(line_end="\r\n")), ORDER_COLUMNS, crlf)
    inches = [["pipe", '5"', "1.5"], *PARTS]
    plain = "part,length,weight\n" + "".join(",".join(row) + "\n" for row in inches)
    yield Case("inch-mark.csv", plain.encode(), PART_COLUMNS, inches)
    apostrophes = [["'tis", "1", "2.5"], ["dogs'", "2", "3.5"], *PARTS]
    plain = "part,length,weight\n" + "".join(",".join(row) + "\n" for row in apostrophes)
    yield Case("apostrophes.csv", plain.encode(), PART_COLUMNS, apostrophes)
    yield from _list_misquoted_cases()


def _list_misquoted_cases() -> Iterator[Case]:
    head = "id,name,note,price\n" + "".join(f'{n},name {n},"a note, number {n}",{n}.5\n' for n in range(1, 8))
    columns = ["id", "name", "note", "price"]
    rows = [[str(n), f"name {n}", f"a note, number {n}", f"{n}.5"] for n in range(1, 8)]
    tail = '9,last,"a, b",9.5\n'
    end = ["9", "last", "a, b", "9.5"]
    right = {
        "extra-quote-first-column": ('"8,x,"y, z",8.5', ['"8', "x", "y, z", "8.5"]),
        "extra-quote-second-column": ('8,"x,"y, z",8.5', ["8", '"x', "y, z", "8.5"]),
        "extra-quote-before-quoted": ('8,x,""y, z",8.5', ["8", "x", '"y, z', "8.5"]),
        "quote-not-doubled": ('8,x,"y 5" long, z",8.5', ["8", "x", 'y 5" long, z', "8.5"]),
        "quote-not-doubled-at-end": ('8,x,"y, 48"","8.5"', ["8", "x", 'y, 48"', "8.5"]),
        "two-quotes-not-doubled": ('8,x,"the "big" one, z",8.5', ["8", "x", 'the "big" one, z', "8.5"]),
    }
    for name, (line, row) in right.items():
        yield Case(f"{name}.csv", f"{head}{line}\n{tail}".encode(), columns, [*rows, row, end])
    for name, line in {
        "quote-not-closed": '8,x,"y, z,8.5',
        "quote-not-closed-last": '8,x,"y, z","8.5',
        "quote-not-doubled-or-open": '8,x,"y, 48"",8.5',
        "quote-alone": '8,x,",8.5',
        "quote-two-readings": '8,"x", "y" z, w",8.5,q"',
    }.items():
        yield Case(f"{name}.csv", f"{head}{line}\n{tail}".encode(), columns, [*rows, end], defects=[9])
    yield Case("quote-not-closed-at-end.csv", f'{head}8,x,"y, z'.encode(), columns, rows, defects=[9])
    header = head.replace("id,name,note", 'id,"name,"note"')
    yield Case("header-extra-quote.csv", header.encode(), ["id", '"name', "note", "price"], rows)


def _list_line_cases() -> Iterator[Case]:
    lines = [",".join(ORDER_COLUMNS), *(",".join(row) for row in PLAIN_ORDERS)]
    for name, text in {
        "no-last-line-end": "\n".join(lines),
        "two-last-line-ends": "\n".join(lines) + "\n\n",
        "blank-lines-between": "\n\n".join(lines) + "\n",
        "blank-lines-first": "\n\n" + "\n".join(lines) + "\n",
        "line-of-blanks-last": "\n".join(lines) + "\n\n\r\n\n",
        "lf-and-crlf": "".join(line + ("\r\n" if at % 2 else "\n") for at, line in enumerate(lines)),
        "cr-and-lf": "".join(line + ("\r" if at % 3 == 2 else "\n") for at, line in enumerate(lines)),
        "cr-and-crlf": "".join(line + ("\r" if at % 3 == 1 else "\r\n") for at, line in enumerate(lines)),
    }.items():
        yield Case(f"{name}.csv", text.encode(), ORDER_COLUMNS, PLAIN_ORDERS)
    nul = "\n".join([*lines[:4], lines[4].replace("Dan", "D\0n"), *lines[5:]]) + "\n"
    yield Case("nul-in-row.csv", nul.encode(), ORDER_COLUMNS, PLAIN_ORDERS[:3] + PLAIN_ORDERS[4:], defects=[5])


def _list_encoding_cases() -> Iterator[Case]:
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"):
        for name, delimiter in {"comma": ",", "semicolon": ";"}.items():
            data = write_table(ORDER_COLUMNS, ORDERS, Style(delimiter, encoding=encoding, line_end="\r\n"))
            yield Case(f"{encoding}-{name}.csv", data, ORDER_COLUMNS, ORDERS)
    for encoding, words in {
        "cp1251": ["Привет мир", "Добрый день", "Как дела сегодня", "Хорошо спасибо", "До свидания"],
        "cp1250": ["Żółć gęślą jaźń", "Dzień dobry proszę państwa", "Święta i źródło", "Łódź", "Kraków śnieg"],
        "gb18030": ["北京市朝阳区建国路", "客户需要在星期五", "之前收到所有货物", "和发票", "谢谢您的合作"],
    }.items():
        rows = [[str(n), word, f"{n}.5"] for n, word in enumerate(words * 3, 1)]
        data = write_table(["id", "text", "value"], rows, Style(encoding=encoding))
        yield Case(f"{encoding}.csv", data, ["id", "text", "value"], rows)
    good = write_table(ORDER_COLUMNS, ORDERS, Style())
    data = good + "1009,Jürgen,Ulm,1.00,2024-05-01,true\n".encode("latin-1")
    yield Case("one-row-in-latin-1.csv", data, ORDER_COLUMNS, ORDERS, defects=[10])


def _list_compression_cases() -> Iterator[Case]:
    data = write_table(ORDER_COLUMNS, ASCII_ORDERS, Style(";"))
    for name, packed in {
        "gzip.csv.gz": gzip.compress(data, mtime=0),
        "gzip-named-csv.csv": gzip.compress(data, mtime=0),
        "zstd-named-txt.txt": zstd_compressed(data),
        "zip.zip": zipped(("orders.csv", data)),
        "zip-named-csv.csv": zipped(("orders.csv", data)),
        "zip-of-a-mac.zip": zipped(("orders.csv", data), ("__MACOSX/._orders.csv", b"\0\1")),
    }.items():
        yield Case(name, packed, ORDER_COLUMNS, ASCII_ORDERS)
