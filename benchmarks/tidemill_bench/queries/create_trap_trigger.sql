-- Runs the action of each new row.
CREATE OR REPLACE TRIGGER spring_trap BEFORE INSERT ON tidemill_bench.traps
FOR EACH ROW EXECUTE FUNCTION tidemill_bench.spring_trap()
