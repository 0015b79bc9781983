-- The secrets that one browser was given, one after the other, are a family: signing out ends them all. A secret that
-- is offered counts from its first use on, and only then the ones before it end: an answer that is lost costs nothing.
-- A browser that signed in with a key is signed in for as long as that key is good.
ALTER TABLE tidemill.session
    ADD family     uuid NOT NULL DEFAULT tidemill.new_id(),
    ADD offered_at timestamptz,
    ADD used       boolean NOT NULL DEFAULT true,
    ADD key_prefix text REFERENCES tidemill.api_key ON DELETE CASCADE;
