"""Headers, text before and after the table, comments, several tables, and rows of other widths."""

from collections.abc import Iterator

from files.corpus.case import Case, Style, write_table
from files.corpus.tables import (
    ASCII_ORDERS,
    ORDER_COLUMNS,
    ORDERS,
    PART_COLUMNS,
    PARTS,
    PLAIN_ORDERS,
    TEAM_COLUMNS,
    TEAMS,
)

SIX = [f"column_{n}" for n in range(1, 7)]
THREE = SIX[:3]
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}


def list_table_cases() -> Iterator[Case]:
    yield from _list_header_cases()
    yield from _list_name_cases()
    yield from _list_preamble_cases()
    yield from _list_comment_cases()
    yield from _list_multi_row_header_cases()
    yield from _list_several_table_cases()
    yield from _list_footer_cases()
    yield from _list_width_cases()
    yield from _list_value_cases()


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _list_header_cases() -> Iterator[Case]:
    for name, delimiter in DELIMITERS.items():
        style = Style(delimiter, has_header=False)
        yield Case(f"no-header-{name}.csv", write_table([], ORDERS, style), SIX, ORDERS)
        yield Case(f"no-header-short-{name}.csv", write_table([], PARTS, style), THREE, PARTS)
    yield Case("no-header-two-rows.csv", write_table([], ORDERS[:2], Style(has_header=False)), SIX, ORDERS[:2])
    yield Case("no-header-one-row.csv", write_table([], ORDERS[:1], Style(has_header=False)), SIX, ORDERS[:1])
    yield Case("no-header-numbers.csv", text("1,2,3", "4,5,6", "7,8,9"), THREE, [list("123"), list("456"), list("789")])
    yield Case("no-header-one-column.csv", text("10", "20", "30"), ["column_1"], [["10"], ["20"], ["30"]])
    yield Case("header-only.csv", write_table(ORDER_COLUMNS, [], Style()), ORDER_COLUMNS, [])
    yield Case("one-row.csv", write_table(ORDER_COLUMNS, ORDERS[:1], Style()), ORDER_COLUMNS, ORDERS[:1])
    yield Case("text-only.csv", write_table(TEAM_COLUMNS, TEAMS, Style()), TEAM_COLUMNS, TEAMS)
    yield Case("one-column.csv", text("amount", "1", "2", "3"), ["amount"], [["1"], ["2"], ["3"]])
    yield Case("one-text-column.csv", text("name", "Ann Lee", "Bob Ray"), ["name"], [["Ann Lee"], ["Bob Ray"]])
    two_words = [["Ann Lee"], ["Bob Ray"], ["Cid Fox"]]
    yield Case("one-column-of-two-words.csv", text("full name", *(r[0] for r in two_words)), ["full name"], two_words)
    yield Case("empty.csv", b"", refused="empty")
    yield Case("blank.csv", b"\n\n\n", refused="empty")
    yield Case("text-that-repeats.csv", text("Berlin,red", "Paris,blue", "Berlin,green", "Rome,red"), refused="header")
    yield Case("years-as-names.csv", text("region,2019,2020", "north,100,200", "south,110,190"), refused="header")
    yield Case(
        "names-with-digits.csv", text("q1,q2,q3", "5,6,7", "8,9,1"), ["q1", "q2", "q3"], [list("567"), list("891")]
    )
    missing = [["1", "n/a", "x"], ["2", "3.5", "y"], ["3", "-", "z"], ["4", "4.5", "w"]]
    yield Case("null-words.csv", write_table(["id", "rate", "code"], missing, Style()), ["id", "rate", "code"], missing)
    yield Case("null-words-no-header.csv", write_table([], missing, Style(has_header=False)), THREE, missing)


def _list_name_cases() -> Iterator[Case]:
    changed = {
        "name-missing": (["id", "", "city", "amount", "created", "paid"], 1, "column_2"),
        "name-missing-first": (["", "customer", "city", "amount", "created", "paid"], 0, "column_1"),
        "name-repeated": (["id", "city", "city", "amount", "created", "paid"], 2, "city_2"),
    }
    for name, (header, at, derived) in changed.items():
        columns = [*header[:at], derived, *header[at + 1 :]]
        yield Case(f"{name}.csv", write_table(header, ORDERS, Style()), columns, ORDERS)
    data = text("a,a,a,a_2", "1,2,3,4", "5,6,7,8")
    yield Case("names-repeated.csv", data, ["a", "a_3", "a_4", "a_2"], [list("1234"), list("5678")])
    for name, delimiter in DELIMITERS.items():
        data = write_table(ORDER_COLUMNS, PLAIN_ORDERS, Style(delimiter, ends_with_delimiter=True))
        yield Case(f"trailing-{name}.csv", data, ORDER_COLUMNS, PLAIN_ORDERS)
    data = write_table(ORDER_COLUMNS, ORDERS, Style(quotes_all=True, ends_with_delimiter=True, line_end="\r\n"))
    yield Case("trailing-all-quoted.csv", data, ORDER_COLUMNS, ORDERS)
    lines = [
        line + "," if at else line
        for at, line in enumerate(write_table(PART_COLUMNS, PARTS, Style()).decode().split("\n")[:-1])
    ]
    yield Case("trailing-in-rows-only.csv", text(*lines), refused="trailing_delimiter")
    empty_last = [[*row, ""] for row in PARTS]
    yield Case(
        "empty-last-column.csv",
        write_table([*PART_COLUMNS, "note"], empty_last, Style()),
        [*PART_COLUMNS, "note"],
        empty_last,
    )
    broken = text('"item\nname",price', "a,1.5", "b,2.5")
    yield Case("name-with-line-break.csv", broken, ["item\nname", "price"], [["a", "1.5"], ["b", "2.5"]])
    blanks = text(" part , length , weight ", *(",".join(row) for row in PARTS))
    yield Case("names-with-blanks.csv", blanks, PART_COLUMNS, PARTS)
    marked = "\ufeff".encode() + write_table(PART_COLUMNS, PARTS, Style(quotes_all=True))
    yield Case("byte-order-mark-and-quotes.csv", marked, PART_COLUMNS, PARTS)


def _list_preamble_cases() -> Iterator[Case]:
    for name, delimiter in DELIMITERS.items():
        gap = delimiter * 5
        for kind, before in {
            "title": ["Monthly report"],
            "title-and-blank": ["Monthly report", ""],
            "three-lines": ["Monthly report", "Created by Ann", "Version 2"],
            "delimited-title": ["Monthly report" + gap, gap],
            "labels": [f"Report{delimiter}Orders", f"Created{delimiter}2024-05-01", ""],
        }.items():
            data = write_table(ORDER_COLUMNS, ORDERS, Style(delimiter, before=before))
            yield Case(f"{kind}-{name}.csv", data, ORDER_COLUMNS, ORDERS)
    sep = write_table(PART_COLUMNS, PARTS, Style(";", before=["sep=;"]))
    yield Case("sep-line.csv", sep, PART_COLUMNS, PARTS)
    data = write_table([], PARTS, Style(has_header=False, before=["Parts of May"]))
    yield Case("title-without-header.csv", data, refused="skip_lines")


def _list_comment_cases() -> Iterator[Case]:
    for prefix in ("#", "//", "%"):
        name = {"#": "hash", "//": "slashes", "%": "percent"}[prefix]
        before = [f"{prefix} made by a tool", f"{prefix} on 2024-05-01"]
        data = write_table(ORDER_COLUMNS, ORDERS, Style(before=before))
        yield Case(f"comments-{name}.csv", data, ORDER_COLUMNS, ORDERS)
    lines = write_table(PART_COLUMNS, PARTS, Style(";")).decode().splitlines()
    yield Case("comments-between.csv", text("# parts", *lines[:3], "# more", *lines[3:]), PART_COLUMNS, PARTS)
    yield Case("comment-last.csv", text("# parts", *lines, "# end"), PART_COLUMNS, PARTS)
    vcf = text("##format=2", "##source=tool", "#chrom\tpos\tid", "1\t100\tx1", "2\t200\tx2")
    yield Case("comments-of-two-marks.txt", vcf, ["#chrom", "pos", "id"], [["1", "100", "x1"], ["2", "200", "x2"]])
    yield Case(
        "names-in-comment.csv",
        text("# made by a tool", "# part,length,weight", *(",".join(r) for r in PARTS)),
        ["# part", *PART_COLUMNS[1:]],
        PARTS,
    )
    ids = [["#1", "a", "2"], ["#2", "b", "3"], ["#3", "c", "5"]]
    yield Case("ids-with-hash.csv", write_table(["id", "x", "y"], ids, Style()), ["id", "x", "y"], ids)
    yield Case("name-with-hash.csv", text("#id,x", "1,2", "3,4"), ["#id", "x"], [["1", "2"], ["3", "4"]])


def _list_multi_row_header_cases() -> Iterator[Case]:
    for count in (2, 3):
        joined = [" ".join([name] * count) for name in ORDER_COLUMNS]
        data = write_table([], ORDERS, Style(header_rows=[ORDER_COLUMNS] * count))
        yield Case(f"header-{count}-times.csv", data, joined, ORDERS)
    units = [PART_COLUMNS, ["", "mm", "kg"]]
    columns = ["part", "length mm", "weight kg"]
    yield Case("header-with-units.csv", write_table([], PARTS, Style(header_rows=units)), columns, PARTS)
    data = write_table([], PARTS, Style(";", header_rows=units, before=["Parts", ""]))
    yield Case("title-and-units.csv", data, columns, PARTS)
    groups = [["", "Size", ""], ["part", "length", "width"]]
    rows = [["bolt", "12", "3"], ["nut", "4", "4"], ["rod", "250", "10"]]
    yield Case("header-with-one-group.csv", write_table([], rows, Style(header_rows=groups)), refused="skip_lines")
    groups = [["", "Sales", "", "Costs", ""], ["region", "may", "june", "may", "june"]]
    rows = [["north", "1", "2", "3", "4"], ["south", "5", "6", "7", "8"], ["west", "9", "1", "2", "3"]]
    columns = ["region", "Sales may", "Sales june", "Costs may", "Costs june"]
    yield Case("header-with-groups.csv", write_table([], rows, Style(header_rows=groups)), columns, rows)


def _list_several_table_cases() -> Iterator[Case]:
    orders = write_table(ORDER_COLUMNS, ASCII_ORDERS, Style()).decode()
    parts = write_table(PART_COLUMNS, PARTS, Style()).decode()
    wide = write_table([*ORDER_COLUMNS, "more"], [[*row, "x"] for row in ASCII_ORDERS], Style()).decode()
    for name, content in {
        "two-tables-blank-line": f"{orders}\n{parts}",
        "two-tables-no-blank-line": orders + parts,
        "two-tables-wider": orders + wide,
        "two-tables-with-titles": f"Orders\n{orders}\nParts\n{parts}",
        "three-tables": f"{orders}\n\n{parts}\n{orders}",
    }.items():
        yield Case(f"{name}.csv", content.encode(), refused="table")
    data = (orders + orders).encode()
    yield Case("header-again.csv", data, ORDER_COLUMNS, ASCII_ORDERS * 2, defects=[10])


def _list_footer_cases() -> Iterator[Case]:
    for name, delimiter in DELIMITERS.items():
        gap = delimiter * 5
        for kind, after in {
            "footnote": ["", "Source: the shop system"],
            "footnotes": ["", "* without returns", "Printed on 2024-05-01"],
            "footnote-near": ["All amounts in euros"],
            "delimited-footnote": ["All amounts in euros" + gap],
        }.items():
            data = write_table(ORDER_COLUMNS, ORDERS, Style(delimiter, after=after))
            yield Case(f"{kind}-{name}.csv", data, ORDER_COLUMNS, ORDERS)
    total = "Total" + ",,,1434.71,,"
    yield Case("total.csv", write_table(ORDER_COLUMNS, ORDERS, Style(after=[total])), ORDER_COLUMNS, ORDERS)
    summe = write_table(PART_COLUMNS, PARTS, Style(";", after=["Summe;364;20,95"]))
    yield Case("summe.csv", summe, PART_COLUMNS, PARTS)
    yield Case(
        "total-or-not.csv", write_table(PART_COLUMNS, PARTS, Style(after=["Total,3,9.9"])), refused="footer_lines"
    )
    data = write_table(ORDER_COLUMNS, ORDERS, Style(before=["Report", ""], after=["", "End of the report"]))
    yield Case("title-and-footnote.csv", data, ORDER_COLUMNS, ORDERS)


def _list_width_cases() -> Iterator[Case]:
    lines = write_table(ORDER_COLUMNS, PLAIN_ORDERS, Style()).decode().splitlines()
    for name, at in {"first": 1, "middle": 4, "last": len(lines) - 1}.items():
        kept = [row for n, row in enumerate(PLAIN_ORDERS, 1) if n != at]
        for kind, line in {
            "short": lines[at].rsplit(",", 2)[0],
            "long": lines[at] + ",more",
            "separator-missing": lines[at].replace(",", "", 1),
            "separator-added": "," + lines[at],
            "other-delimiter": lines[at].replace(",", " "),
        }.items():
            data = text(*lines[:at], line, *lines[at + 1 :])
            yield Case(f"{kind}-{name}-row.csv", data, ORDER_COLUMNS, kept, defects=[at + 1])
    yield Case("header-too-short.csv", text("id,customer,city,amount,created", *lines[1:]), refused="header")
    yield Case("header-too-long.csv", text(lines[0] + ",more", *lines[1:]), refused="header")


def _list_value_cases() -> Iterator[Case]:
    german = [
        ["1", "Jürgen Groß", "1.234,56", "03.01.2024", "ja"],
        ["2", "Käthe Öl", "99,90", "14.02.2024", "nein"],
        ["3", "Uwe", "12.000,00", "28.02.2024", "ja"],
    ]
    columns = ["Nr", "Name", "Betrag", "Datum", "bezahlt"]
    for encoding in ("utf-8", "cp1252"):
        data = write_table(columns, german, Style(";", encoding=encoding, line_end="\r\n"))
        yield Case(f"german-{encoding}.csv", data, columns, german)
    money = [["a", "€ 99,90"], ["b", "€ 1.000,00"], ["c", "€ 5,00"]]
    yield Case("currency.csv", write_table(["item", "price"], money, Style(";")), ["item", "price"], money)
    decimals = [["1,5", "2,5"], ["3,5", "4,5"], ["5,5", "6,5"]]
    yield Case("decimal-commas.csv", write_table(["x", "y"], decimals, Style(";")), ["x", "y"], decimals)
    zeros = [["00501", "Ann"], ["01234", "Bob"], ["99999", "Cid"]]
    yield Case("leading-zeros.csv", write_table(["zip", "name"], zeros, Style()), ["zip", "name"], zeros)
    long = [[str(n), "word " * 60 + "end, last", f"{n}.5"] for n in range(1, 6)]
    yield Case("long-texts.csv", write_table(["id", "text", "rate"], long, Style()), ["id", "text", "rate"], long)
    sparse = [["1", "", "", "x"], ["2", "", "5", ""], ["3", "", "", ""], ["4", "", "7", "y"]]
    yield Case("sparse.csv", write_table(["id", "a", "b", "c"], sparse, Style()), ["id", "a", "b", "c"], sparse)
    wide_columns = [f"field {n}" for n in range(1, 121)]
    wide = [[str(n * row) for n in range(1, 121)] for row in range(1, 6)]
    yield Case("wide.csv", write_table(wide_columns, wide, Style()), wide_columns, wide)
    urls = [["a", "https://example.com/?q=1;2", "10:30"], ["b", "https://example.com/?q=3;4", "11:00"]]
    yield Case("urls-and-times.csv", write_table(["k", "url", "at"], urls, Style()), ["k", "url", "at"], urls)
