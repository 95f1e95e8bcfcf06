"""A cursor of Python's database interface (PEP 249), for programs that ask for one, as pandas.read_sql does.

Invariant: it is the result of its last statement; every statement is committed when it returns, so there is nothing to roll back.
"""

from thalweg._thalweg import Error


class Cursor:
    """Runs statements, and gives the rows of the last one."""

    arraysize = 1
    # Rows stream: how many there are is not known before all were read.
    rowcount = -1

    def __init__(self, database):
        self._database = database
        self._result = None

    def execute(self, text, params=None):
        self._result = self._database.sql(text, params)
        return self

    def executemany(self, text, rows):
        self._result = self._database.executemany(text, rows)
        return self

    @property
    def description(self):
        return None if self._result is None else self._result.description

    def fetchone(self):
        return self._rows().fetchone()

    def fetchmany(self, size=None):
        return self._rows().fetchmany(self.arraysize if size is None else size)

    def fetchall(self):
        return self._rows().fetchall()

    def __iter__(self):
        return iter(self._rows())

    def close(self):
        self._result = None

    def _rows(self):
        if self._result is None:
            raise Error("the cursor has run no statement: execute() comes first")
        return self._result
