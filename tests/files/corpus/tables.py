"""The tables of the corpus."""

ORDER_COLUMNS = ["id", "customer", "city", "amount", "created", "paid"]
ORDERS = [
    ["1001", "Ann Smith", "Berlin", "12.50", "2024-01-03", "true"],
    ["1002", "Bob, Jr.", "Paris", "7.00", "2024-01-04", "false"],
    ["1003", 'Carla "CC" Diaz', "Rome", "99.90", "2024-02-11", "true"],
    ["1004", "Dan", "", "1250.00", "2024-02-28", "true"],
    ["1005", "Eve Müller", "Köln", "0.99", "2024-03-01", "false"],
    ["1006", "Frank", "Oslo", "18.20", "2024-03-02", "true"],
    ["1007", "Grace O'Hara", "Cork", "42.00", "2024-03-09", "true"],
    ["1008", "Heidi", "Graz", "5.10", "2024-04-17", "false"],
]
PLAIN_ORDERS = [[cell.replace('"', "").replace(",", "").replace("'", "") for cell in row] for row in ORDERS]
ASCII_ORDERS = [[cell.replace("ü", "u").replace("ö", "o") for cell in row] for row in PLAIN_ORDERS]
COMPACT_ORDERS = [[cell.replace(" ", "_") or "none" for cell in row] for row in ASCII_ORDERS]
TEAM_COLUMNS = ["team", "lead", "site"]
TEAMS = [
    ["Sales", "Ann", "North wing"],
    ["Support", "Bob", "South wing"],
    ["Design", "Carla", "Tower"],
    ["Legal", "Dan", "Annex"],
]
PART_COLUMNS = ["part", "length", "weight"]
PARTS = [
    ["bolt", "12", "0.5"],
    ["nut", "4", "0.1"],
    ["rod", "250", "12.4"],
    ["plate", "90", "7.75"],
    ["pin", "8", "0.2"],
]
