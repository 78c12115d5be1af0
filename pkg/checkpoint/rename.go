package checkpoint

import (
	"encoding/binary"
	"fmt"
)

// How much Rename moves in one transaction.
const (
	renameEntries = 1000
	renameBytes   = 8 << 20
)

// Rename makes what one route owes the debt of another one, and what its rules know that of the other one's rules, where these know
// nothing themselves. What is owed comes before what the other one owes itself, in the same order and with the same ids. Where they overlap, the ids up to upTo that are owed under the new name are raised, by upTo or by the highest id that comes
// before them, whichever is more; those above upTo stay as they are. Nothing is owed under the old name then.
//
// It takes several transactions, so that memory is bounded. If one fails, or the process ends in between, all of it is owed still, a
// part under each name, and Rename completes it: with the same upTo, or after a restart with the highest id that is there.
func (db *DB) Rename(from, to string, upTo uint64) error {
	m := mover{from: bucketName(from), to: bucketName(to), upTo: upTo}
	for done := false; !done; {
		err := db.update(TransactionRename, func(tx *writing) (err error) {
			done, err = tx.rename(&m)
			return err
		})
		if err != nil {
			return fmt.Errorf("what route %q owed cannot be given to %q in the state file: %w", from, to, err)
		}
	}
	return nil
}

// mover is how far a Rename is. The highest ids move first, so that the order is kept whenever it is interrupted.
type mover struct {
	from, to string
	upTo     uint64
	looked   bool
	shift    uint64 // what is still to be added to ids in to
	before   []byte // the key from which on that is done
}

func (tx *writing) rename(m *mover) (done bool, err error) {
	if top := tx.top(routesBucket); top.Bucket == nil || top.Bucket.Bucket([]byte(m.from)) == nil {
		return true, nil
	}
	from, err := tx.debtor(m.from)
	if err != nil {
		return false, err
	}
	to, err := tx.debtor(m.to)
	if err != nil {
		return false, err
	}
	if !m.looked {
		m.looked, m.before = true, owedKey(m.upTo+1)
		last, _ := from.Cursor().Last()
		if first, _ := to.Cursor().First(); first != nil && last != nil && string(first) <= string(last) {
			m.shift = max(m.upTo, binary.BigEndian.Uint64(last))
		}
	}
	if m.shift > 0 {
		if m.before, err = tx.move(to, to, m.before, m.shift); m.before == nil {
			m.shift = 0
		}
		return false, err
	}
	if rest, err := tx.move(from, to, nil, 0); rest != nil || err != nil {
		return false, err
	}
	return tx.moveRules(m.from, m.to)
}

// move moves entries from one shelf to another, or within one, adding shift to their ids, from the highest below the key before (nil:
// from the end). It returns the lowest key that it came to, nil if there are none below.
func (tx *writing) move(from, to shelf, before []byte, shift uint64) ([]byte, error) {
	cursor := from.Cursor()
	var key, value []byte
	if before == nil {
		key, value = cursor.Last()
	} else {
		if key, _ = cursor.Seek(before); key != nil {
			key, value = cursor.Prev()
		} else {
			key, value = cursor.Last()
		}
	}
	var keys, values [][]byte
	for size := 0; key != nil && len(keys) < renameEntries && size < renameBytes; key, value = cursor.Prev() {
		id := binary.BigEndian.Uint64(key)
		moved, err := tx.codec.moved(from.seed, key, value, to.seed, owedKey(id+shift))
		if err != nil {
			return nil, err
		}
		keys, values = append(keys, owedKey(id)), append(values, moved)
		size += len(moved)
	}
	for i, k := range keys {
		if err := tx.remove(from, k); err != nil {
			return nil, err
		}
		if err := tx.store(to, owedKey(binary.BigEndian.Uint64(k)+shift), values[i]); err != nil {
			return nil, err
		}
	}
	if key == nil || len(keys) == 0 {
		return nil, nil
	}
	return keys[len(keys)-1], nil
}
