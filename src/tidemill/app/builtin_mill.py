"""A mill with nothing but what is built in: for workers that import and export, and for no kind of anybody's own."""

from tidemill.app.mill import Mill

mill = Mill()
