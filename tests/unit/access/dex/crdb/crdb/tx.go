// Package crdb stands in for a package of which only this function is compiled in.
package crdb

import "database/sql"

// ExecuteTx runs fn in a transaction.
func ExecuteTx(db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
