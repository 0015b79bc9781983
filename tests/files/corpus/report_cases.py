"""Files as spreadsheets and instruments write them: blank lines of delimiters, titles, sections, and odd headers."""

from collections.abc import Iterator

from files.corpus.case import Case, Style, write_table
from files.corpus.tables import ORDER_COLUMNS, ORDERS, PART_COLUMNS, PARTS, PLAIN_ORDERS, TEAM_COLUMNS, TEAMS

PART_LINES = [",".join(row) for row in PARTS]


def list_report_cases() -> Iterator[Case]:
    yield from _list_blank_line_cases()
    yield from _list_header_name_cases()
    yield from _list_header_width_cases()
    yield from _list_title_cases()
    yield from _list_section_cases()


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _list_blank_line_cases() -> Iterator[Case]:
    for name, delimiter in {"comma": ",", "semicolon": ";", "tab": "\t"}.items():
        gap = delimiter * 5
        data = write_table(ORDER_COLUMNS, ORDERS, Style(delimiter, after=[gap] * 30))
        yield Case(f"delimiters-at-end-{name}.csv", data, ORDER_COLUMNS, ORDERS)
    lines = write_table(ORDER_COLUMNS, PLAIN_ORDERS, Style(line_end="\r\n")).decode().splitlines()
    between = text(*lines[:3], ",,,,,", *lines[3:6], ",,,,,", ",,,,,", *lines[6:])
    yield Case("delimiters-between.csv", between, ORDER_COLUMNS, PLAIN_ORDERS)
    first = text(",,,,,", ",,,,,", *lines)
    yield Case("delimiters-before-header.csv", first, ORDER_COLUMNS, PLAIN_ORDERS)
    quoted = write_table(PART_COLUMNS, PARTS, Style(quotes_all=True, after=['"","",""'] * 3))
    yield Case("quotes-at-end.csv", quoted, PART_COLUMNS, PARTS)
    trailing = [*(f"{line}," for line in [",".join(PART_COLUMNS), *PART_LINES]), ",,,", ",,,"]
    yield Case("delimiters-and-trailing.csv", text(*trailing), PART_COLUMNS, PARTS)


def _list_header_name_cases() -> Iterator[Case]:
    head = '"part",length,weight'
    again = text(head, *PART_LINES, "part,length,weight", *PART_LINES)
    yield Case("header-again-without-quotes.csv", again, PART_COLUMNS, PARTS * 2, defects=[7])
    again = text("part,length,weight", *PART_LINES, '"part","length","weight"', *PART_LINES)
    yield Case("header-again-with-quotes.csv", again, PART_COLUMNS, PARTS * 2, defects=[7])
    rows = [["897.5", "-74.2", "247.3"], ["896.3", "53.9", "252.6"], ["895.2", "195.1", "258.0"]]
    codes = ["Data_x", "x0001", "y0001"]
    lines = [f"{','.join(row)}," for row in rows]
    yield Case("codes-as-names.csv", write_table(codes, rows, Style()), codes, rows)
    yield Case("codes-as-names-trailing.csv", text(",".join(codes), *lines), refused="trailing_delimiter")
    values = [["run", "1_10", "1_11"], ["0", ".", "E"], ["1", "A", "."], ["2", ".", "."], ["3", "E", "A"]]
    yield Case("numbers-with-underscore-as-names.csv", text(*map(",".join, values)), values[0], values[1:])
    exported = text("#EXPORT,DATA ALL", "#FORMAT,A5", "#KIND,plain", "##part,length,weight", *PART_LINES)
    yield Case("names-in-last-comment.csv", exported, ["##part", "length", "weight"], PARTS)
    both = [["alpha beta, x", "gamma, y", "delta, z"] for _ in range(9)]
    data = write_table(TEAM_COLUMNS, both, Style())
    yield Case("comma-and-blank-in-each-field.csv", data, TEAM_COLUMNS, both)
    unit = [["Nr", "Price", "share"], ["", "mm", ""], ["1", "5.5", "7 %"], ["2", "6.5", "9 %"], ["3", "7.5", "1 %"]]
    yield Case("one-unit.csv", text(*map(",".join, unit)), ["Nr", "Price mm", "share"], unit[2:])
    few = [[str(n), word, f"{n}.5"] for n, word in enumerate(["Köln", "São Paulo", "Graz", "Köln", "Rome"])]
    data = write_table(["id", "city", "rate"], few, Style(encoding="cp1252"))
    yield Case("few-western-letters.csv", data, ["id", "city", "rate"], few)
    quoted = [["1", "Eve O'Hara", "7"], ["2", "Ann", "8"], ["3", "Bob", "9"]]
    yield Case(
        "one-doubled-apostrophe.csv",
        text("id,name,n", "1,'Eve O''Hara',7", "2,Ann,8", "3,Bob,9"),
        ["id", "name", "n"],
        quoted,
    )
    wide = [f"n{at}" for at in range(10)]
    both = [[f"alpha {at}, x {n}" for at in range(10)] for n in range(200)]
    yield Case("comma-and-blank-in-wide-rows.csv", write_table(wide, both, Style()), wide, both)


def _list_header_width_cases() -> Iterator[Case]:
    yield Case("header-ends-with-delimiter.csv", text("part,length,weight,", *PART_LINES), PART_COLUMNS, PARTS)
    yield Case("header-with-blank-name.csv", text("part,,length,weight", *PART_LINES), PART_COLUMNS, PARTS)
    answers = [["task1", "s1", "abc"], ["task2", "s2", "def"], ["task3", "s3", "ghi"]]
    long = text("task,Last30Days,answer,approve,reject", *map(",".join, answers))
    yield Case("header-with-two-names-more.csv", long, refused="header")
    rows = [[str(n), f"{n}.5", "x"] for n in range(9)]
    mixed = text("a;b;c", *map(";".join, rows), *(f"t{n},{n},{n}.5" for n in range(7)))
    yield Case("two-delimiters.csv", mixed, list("abc"), rows, defects=range(11, 18))
    listed = text("vehicles", *(f"f{n}=[{n},{n}.5,7,{n}]" for n in range(4)), *(f"{n};{n}.5;7" for n in range(9)))
    yield Case("lines-of-two-kinds.csv", listed, refused="skip_lines")


def _list_title_cases() -> Iterator[Case]:
    two = [["Hotels", "227799.88"], ["Rail", "1981067.75"], ["Air", "6235721.29"], ["Cars", "200403.78"]]
    names = ["Kind", "Amount"]
    data = text("Summary of the travel costs,", ",", "Kind,Amount", *map(",".join, two))
    yield Case("title-of-two-columns.csv", data, names, two)
    data = text("Summary of the travel costs,", "Kind,Amount", *map(",".join, two))
    yield Case("title-of-two-columns-near.csv", data, names, two)
    columns = ["name", "day", "place", "amount", "note"]
    sparse = [["Ann", "2024-05-01", "Rome", "12.50", ""], *([["", "", place, "", ""] for place in ("Bari", "Pisa")])]
    sparse += [["Bob", "2024-05-02", "Oslo", "7.00", ""], *([["", "", place, "", ""] for place in ("Moss", "Bergen")])]
    lines = [",".join(row) for row in [columns, *sparse]]
    yield Case("title-of-sparse-rows.csv", text("Trips,,,,", *lines), columns, sparse)
    yield Case("titles-of-sparse-rows.csv", text("Trips,,,,", "of May,,,,", ",,,,", *lines), columns, sparse)
    in_middle = text(",,,,", ',,"Trips of May",,', ",,,,", *lines)
    yield Case("title-in-the-middle.csv", in_middle, columns, sparse)
    texts = text("Teams,,", *(",".join(row) for row in [TEAM_COLUMNS, *TEAMS]))
    yield Case("title-of-text-table.csv", texts, refused="skip_lines")
    twice = text("Monthly report|", "Monthly report|", "Name|City", "Li Diaz|Paris", "Li Novak|Paris")
    yield Case("title-twice.csv", twice, refused="header")
    notes = text(
        *(f"{line}|" for line in ("fast red, blue", "slow lamp, kitchen", "red chair", "lamp red", "light, chair"))
    )
    yield Case("texts-and-no-second-value.csv", notes, refused="footer_lines")
    blanks = [
        ["name", "extra", "note", "n"],
        *([f"a{n}", "", "", str(n)] if n % 3 else [f"b{n}", "x", "y", "1"] for n in range(20)),
    ]
    yield Case("empty-fields-with-tab.csv", text(*map("\t".join, blanks)), blanks[0], blanks[1:])
    groups = [
        ["Name", "Type", "Staff", "", "", "", "Total"],
        ["", "", "Junior", "", "Senior", "", ""],
        ["", "", "Count", "Share", "Count", "Share", "Count"],
    ]
    body = [["A", "x", "1", "0.5", "2", "0.4", "3"], ["B", "y", "4", "0.1", "5", "0.2", "9"]]
    body += [["C", "x", "6", "0.7", "8", "0.6", "14"]]
    joined = ["Name", "Type", "Staff Junior Count", "Staff Share", "Staff Senior Count", "Staff Share_2", "Total Count"]
    joined[3], joined[5] = "Staff Junior Share", "Staff Senior Share"
    data = write_table([], body, Style(header_rows=groups, after=[",,,,,,"] * 20))
    yield Case("groups-of-three-rows.csv", data, joined, body)


def _list_section_cases() -> Iterator[Case]:
    lines = [",".join(PART_COLUMNS), *PART_LINES]
    sections = text("Parts of May,,", ",,", *lines, ",,", "Parts of June,,", ",,", *lines)
    yield Case("sections-with-equal-headers.csv", sections, refused="table")
    teams = [",".join(row) for row in [TEAM_COLUMNS, *TEAMS]]
    small = text("Nr,link,qty", "1,https://example.com/1,7", "2,https://example.com/2,0", "", *teams)
    yield Case("two-small-tables.csv", small, refused="table")
    few = text(
        "name,when",
        *(f"Ann {n},{n + 10}/06/2018" for n in range(8)),
        "",
        "created,text",
        "2024-02-07,a b",
        "2024-04-08,c",
    )
    yield Case("two-tables-of-two-columns.csv", few, refused="table")
    labels = text("Report,Orders", "Created,2024-05-01", "", "team,size", "Sales,7", "Support,12", "Design,3")
    yield Case("labels-as-wide-as-table.csv", labels, refused="skip_lines")
    numbers = [f"{n};{n},5;x" for n in range(30)]
    tables = ["id;price;note", *numbers, "when;share", *(f"2024-05-{n};{n},25" for n in range(10, 29))]
    yield Case("two-tables-with-decimal-commas.csv", text(*tables), refused="table")
    gifts = ["Gifts,,", "person,gift,reason", "Ann,a book,a talk", "Bob,a pen,a visit"]
    yield Case("sections-of-text.csv", text("Teams,,", ",,", *teams, ",,", *gifts), refused="table")
    wide = [["run", *(f"1_{n}" for n in range(9))], *([str(n), *".EA.EA.EA"] for n in range(9))]
    narrow = [["run", *(f"{n}_days" for n in range(10, 13))], *([str(n), "0", "1", "0"] for n in range(12))]
    both = [",".join(row) for row in [*wide, *narrow]]
    yield Case("two-tables-with-codes-as-names.csv", text(*both), refused="table")
