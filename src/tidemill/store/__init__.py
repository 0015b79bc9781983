"""All SQL. Each verb is one function over one transaction; each statement is one file in queries/."""
