"""Insert, upsert, and only looking."""

from imports.scenes import Scene

PEOPLE = """CREATE TABLE people (email text PRIMARY KEY, name text NOT NULL, age int CHECK (age > 0),
    since timestamptz DEFAULT now())"""


async def test_an_insert_takes_the_good_rows_and_names_what_is_wrong_with_the_others(scene: Scene) -> None:
    await scene.table(PEOPLE, "INSERT INTO people VALUES ('old@x', 'Old', 1)")
    job = await scene.run("email,name,age\na@x,A,1\nb@x,,x\nold@x,O,3\nc@x,C,0\nd@x,D,\n", "people")
    assert job.status == "completed_with_errors"
    assert await scene.errors(job) == [(2, "name.required"), (3, "email.exists"), (4, "age.too_small")]
    assert await scene.rows("SELECT email, name, age FROM people ORDER BY 1") == [
        ("a@x", "A", 1),
        ("d@x", "D", None),
        ("old@x", "Old", 1),
    ]
    (_, _, error), *_ = await scene.outcomes(job)
    assert [(one["field"], one["code"]) for one in error["errors"]] == [("name", "required"), ("age", "type")]


async def test_an_upsert_tells_inserted_updated_and_unchanged_apart(scene: Scene) -> None:
    await scene.table(PEOPLE, "INSERT INTO people VALUES ('a@x', 'A', 1, '2020-01-01'), ('b@x', 'B', 2, '2020-01-01')")
    job = await scene.run("email,name,age,since\na@x,A,1,\nb@x,Bea,2,\nc@x,C,3,\n", "people", mode="upsert")
    assert (job.status, await scene.effects(job)) == ("completed", (1, 1, 1))
    assert await scene.rows("SELECT email, name, age, extract(year FROM since) = 2020 FROM people ORDER BY 1") == [
        ("a@x", "A", 1, True),
        ("b@x", "Bea", 2, True),
        ("c@x", "C", 3, False),
    ]
