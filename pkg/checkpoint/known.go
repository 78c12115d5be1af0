package checkpoint

import (
	"fmt"
	"time"
)

// KnowsRoute reports whether a cut has ever named the route, and it was not forgotten since, see [DB.Forget]. A route that is not known
// is new: no cut holds any of what it was ever given. The error is [ErrClosed] or one of reading.
func (db *DB) KnowsRoute(name string) (known bool, err error) {
	err = db.view(func(tx *reading) error {
		known = tx.shelf(routesBucket, bucketName(name)).Bucket != nil
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return known, nil
}

// Owes reports whether a cut holds anything that the route owes, or that its rules about time know. The error is [ErrClosed] or one of
// reading.
func (db *DB) Owes(name string) (owes bool, err error) {
	err = db.view(func(tx *reading) error {
		for _, bucket := range []string{owedBucket, rulesBucket} {
			if s := tx.shelf(routesBucket, bucketName(name), bucket); s.Bucket != nil {
				first, _ := s.Cursor().First()
				owes = owes || first != nil
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return owes, nil
}

// Gone reports whether a route that is known was not configured when [DB.Forget] was called last: since then it has been given nothing.
func (db *DB) Gone(name string) (gone bool, err error) {
	err = db.view(func(tx *reading) error {
		s := tx.shelf(routesBucket, bucketName(name))
		if s.Bucket == nil {
			return nil
		}
		since, err := tx.codec.goneSince(s)
		gone = !since.IsZero()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("route %q in the state file: %w", name, err)
	}
	return gone, nil
}

// ExpireDebts forgets the routes that have not been configured for [KeepDebts]. To be called before a route returns, because
// [DB.Forget] takes one that is configured for known. It writes only if there is such a route.
func (db *DB) ExpireDebts(now time.Time) error {
	var expired []string
	err := db.view(func(tx *reading) error {
		top := tx.shelf(routesBucket)
		for _, name := range top.names() {
			gone, err := tx.codec.goneSince(tx.shelf(routesBucket, name))
			if err != nil {
				return err
			}
			if !gone.IsZero() && now.Sub(gone) >= KeepDebts {
				expired = append(expired, name)
			}
		}
		return nil
	})
	if err == nil && len(expired) > 0 {
		err = db.update(TransactionForget, func(tx *writing) error {
			for _, name := range expired {
				if err := tx.drop(tx.top(routesBucket), name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("forgetting what routes owed that are long gone: %w", err)
	}
	return nil
}
