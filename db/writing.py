"""A database whose transactions take the write lock at their beginning."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlite_utils import Database


class WritingDatabase(Database):
    """Waits for other writers where a transaction begins.

    SQLite refuses at once, without waiting, to let a transaction write that has read before another
    process wrote ("database is locked"). Every `atomic` block of ours writes in the end.
    """

    @contextmanager
    def atomic(self) -> Iterator[Database]:
        """Run a block as one transaction; nested blocks use savepoints, as in sqlite-utils."""
        if self.conn.in_transaction:
            with super().atomic():
                yield self
            return
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            yield self
            self.conn.execute("COMMIT")
        except BaseException:
            self.rollback()
            raise
