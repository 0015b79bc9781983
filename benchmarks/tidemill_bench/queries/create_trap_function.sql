-- Runs the action of a row: sleeps, or ends the connection of the transaction.
CREATE OR REPLACE FUNCTION tidemill_bench.spring_trap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.action = 'sleep' THEN
        PERFORM pg_sleep(3600);
    ELSIF NEW.action = 'terminate' THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(5);
    END IF;
    RETURN NEW;
END $$
