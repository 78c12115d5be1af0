package checkpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/pkg/event"
)

// maxJournal is the size of the journal in bytes above which intents are committed instead.
const maxJournal = 4 << 20

// journal has the intents since the last transaction, in a file of their own. Each transaction
// begins with them, and begins the next generation of the journal: so the state file then has the
// same content as if each intent had been a transaction. DB.writing guards the fields.
type journal struct {
	file       *statefile.Journal     // nil: there is none, intents are committed
	generation uint64                 // in the state file; 0: none
	begun      uint64                 // of the records; 0: after a transaction with an unknown outcome
	intents    map[string][]newIntent // the records, by watch
}

// Log appends intents to the journal, by the ids of their watches. When it returns nil they are on
// disk. ok is false if they have to be committed instead: in a fleet, whose standbys get
// transactions only, until the first cut, after a failed transaction, and if the journal is too
// large.
func (db *DB) Log(intents map[string][]*event.Object) (ok bool, err error) {
	run := func() error {
		db.writing.Lock()
		defer db.writing.Unlock()
		j := &db.journal
		if ok = j.file != nil && j.begun > 0 && j.begun == j.generation && j.file.Size() < maxJournal && db.cfg.Shipped == nil; !ok {
			return nil
		}
		return j.log(intents)
	}
	if db.cfg.Around == nil {
		err = run()
	} else {
		err = db.cfg.Around(TransactionIntents, run)
	}
	return ok || err != nil, err
}

func (j *journal) log(objects map[string][]*event.Object) error {
	added, payloads := make(map[string][]newIntent, len(objects)), [][]byte{}
	for _, watch := range slices.Sorted(maps.Keys(objects)) {
		added[watch] = intentsOf(objects[watch])
		for _, i := range added[watch] {
			payloads = append(payloads, i.record(watch))
		}
	}
	if err := j.file.Append(payloads); err != nil {
		return err
	}
	if j.intents == nil {
		j.intents = make(map[string][]newIntent)
	}
	for watch, more := range added {
		j.intents[watch] = append(j.intents[watch], more...)
	}
	return nil
}

// record returns the payload of a record of the journal.
func (i *newIntent) record(watch string) []byte {
	var f fields
	f.text(watch)
	f.bytes(i.payload())
	f.bytes(i.state)
	return f
}

func parseRecord(payload []byte) (watch string, i newIntent, err error) {
	r := reader{rest: payload}
	watch = r.text()
	id, state := r.bytes(), r.bytes()
	if err := r.done(); err != nil {
		return "", i, err
	}
	if len(state) > 0 {
		i.state = slices.Clone(state)
	}
	i.Identity, err = parseIdentity(id)
	return watch, i, err
}

// openJournal opens the journal, and reads the intents that a former run has left there. It writes
// nothing, because a router must start on a full disk, too. The journal of a file of another format
// is not read: another version may have written to the file since.
func (db *DB) openJournal() (err error) {
	if db.journal.file, err = db.file.Journal(); err != nil {
		return err
	}
	if db.journal.generation == 0 || db.file.Format() != Format {
		return nil
	}
	lost, err := db.readJournal(db.journal.file.Read)
	if err != nil {
		return err
	}
	if lost > 0 {
		db.cfg.Log.Warn("a part of the journal of the state file is damaged: deletes of objects that were new shortly before the last stop may be missing",
			"file", db.cfg.Path, "lost", lost)
	}
	db.journal.begun = db.journal.generation
	return nil
}

// readJournal reads the intents of the journal.
func (db *DB) readJournal(read func(generation uint64, take func(payload []byte) error) (lost int, err error)) (lost int, err error) {
	j := &db.journal
	j.intents = make(map[string][]newIntent)
	lost, err = read(j.generation, func(payload []byte) error {
		watch, i, err := parseRecord(payload)
		if err == nil {
			j.intents[watch] = append(j.intents[watch], i)
		}
		return err
	})
	if err != nil {
		return lost, fmt.Errorf("the journal: %w", err)
	}
	return lost, nil
}

// settle commits the intents of the journal.
func (db *DB) settle() error {
	if !db.journaled() {
		return nil
	}
	return db.update(TransactionIntents, func(*writing) error { return nil })
}

func (db *DB) journaled() bool {
	db.writing.Lock()
	defer db.writing.Unlock()
	return len(db.journal.intents) > 0
}

// absorb writes the intents of the journal that the transaction does not end, and begins its next
// generation. The first generation of a file is random, so that no other file has it, such as a
// snapshot or a backup that replaces this one.
func (tx *writing) absorb(j *journal) error {
	begins := tx.cut != nil && tx.redo == nil && (j.begun == 0 || j.begun != j.generation)
	if j.file == nil || len(j.intents) == 0 && !begins {
		return nil
	}
	if len(j.intents) > 0 {
		over := endedBy(tx.cut)
		for _, watch := range slices.Sorted(maps.Keys(j.intents)) {
			left := slices.DeleteFunc(slices.Clone(j.intents[watch]), func(i newIntent) bool { return over[watch].has(&i, true) })
			if err := tx.intents(watch, left); err != nil {
				return err
			}
		}
	}
	if tx.generation = j.generation + 1; j.generation == 0 {
		tx.generation = rand.Uint64() >> 1 //nolint:gosec // it is no secret
	}
	var f fields
	f.uint(tx.generation)
	return tx.put(tx.top(metaBucket), []byte(journalKey), f)
}

// absorbed begins the generation of a transaction that is on disk.
func (j *journal) absorbed(tx *writing) {
	if tx.generation > 0 {
		j.generation, j.begun = tx.generation, tx.generation
		j.file.Begin(j.generation)
		clear(j.intents)
	}
}

// closeJournal closes the journal. Its records stay.
func (db *DB) closeJournal() error {
	db.writing.Lock()
	defer db.writing.Unlock()
	file := db.journal.file
	if db.journal.file = nil; file == nil {
		return nil
	}
	return file.Close()
}
