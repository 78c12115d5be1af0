package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/frame"
	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// minArena is the initial size of the memory for the values of a transaction.
	minArena = 16 << 10
	// maxArena is the largest size of that memory that is kept for the next transaction.
	maxArena = 8 << 20
)

// Write writes a cut in one transaction. When it returns nil the cut is on disk; when it returns an
// error no part of it is, and it may be written again. The error wraps [ErrFull] if there is no
// room.
func (db *DB) Write(cut Cut) error { return db.Commit(&cut, nil) }

// WriteIntents writes objects about which a delivery is to begin, by the ids of their watches. When
// it returns nil they are on disk.
func (db *DB) WriteIntents(intents map[string][]*event.Object) error {
	return db.Commit(&Cut{}, intents)
}

// Commit writes a cut, followed by intents that were registered before or after it: objects that
// the cut has or ends are no longer intents.
func (db *DB) Commit(cut *Cut, intents map[string][]*event.Object) error {
	cluster := cut.Cluster
	what := TransactionCut
	if cut.Empty() && cluster == "" {
		what = TransactionIntents
	}
	err := db.updateWith(what, cut, func(tx *writing) error {
		if cluster != "" {
			if err := tx.put(tx.top(metaBucket), []byte(clusterKey), []byte(cluster)); err != nil {
				return err
			}
		}
		for i := range cut.Watches {
			if err := tx.watch(&cut.Watches[i]); err != nil {
				return err
			}
		}
		for watch, objects := range intents {
			if err := tx.intents(watch, intentsOf(objects)); err != nil {
				return err
			}
		}
		for i := range cut.Routes {
			if err := tx.route(&cut.Routes[i]); err != nil {
				return err
			}
		}
		for i := range cut.Memories {
			if err := tx.memory(&cut.Memories[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && cluster != "" {
		db.mu.Lock()
		db.cluster = cluster
		db.mu.Unlock()
	}
	return err
}

// update runs f in a transaction and updates the seal.
func (db *DB) update(what string, f func(tx *writing) error) error {
	return db.updateWith(what, nil, f)
}

// updateWith is update for a transaction with a cut.
func (db *DB) updateWith(what string, cut *Cut, f func(tx *writing) error) (err error) {
	if db.cfg.Around == nil {
		err = db.transact(cut, f)
	} else {
		err = db.cfg.Around(what, func() error { return db.transact(cut, f) })
	}
	if err == nil && db.cfg.Confirm != nil {
		db.cfg.Confirm(db.Position())
	}
	return err
}

func (db *DB) transact(cut *Cut, f func(tx *writing) error) (err error) {
	db.writing.Lock()
	defer db.writing.Unlock()
	defer func() {
		if err != nil {
			db.journal.begun = 0 // perhaps the file has the next generation
		}
	}()
	backlogs := make(map[string]*weight)
	var tx *writing
	return db.file.Update(func(bolt *bbolt.Tx, codec *statefile.Codec) error {
		// Only this transaction changes db.backlogs and db.position, when it is done.
		tx = &writing{Tx: bolt, codec: codec, prints: db.prints.Load(), arena: db.arena[:0], before: db.backlogs, backlogs: backlogs, cut: cut}
		if err := tx.begin(); err != nil {
			return err
		}
		if db.cfg.Shipped != nil {
			tx.redo = frame.NewRecorder(db.redone)
			tx.next = Position{Term: db.cfg.Term, Number: db.position.Number + 1}
		}
		if err := tx.absorb(&db.journal); err != nil {
			return err
		}
		if err := f(tx); err != nil {
			return err
		}
		if db.arena = tx.arena; cap(db.arena) > maxArena {
			db.arena = nil
		}
		return tx.end()
	}, func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		for route, w := range backlogs {
			db.backlogs[route] = *w
		}
		db.journal.absorbed(tx)
		advance(db, tx)
	})
}

// writing is a write transaction.
type writing struct {
	*bbolt.Tx

	codec  *statefile.Codec
	prints *fingerprint.Key
	arena  []byte // bbolt keeps the values until the end of the transaction
	seal   statefile.Seal

	before   map[string]weight  // by route, see DB.backlogs
	backlogs map[string]*weight // those with changes

	cut        *Cut   // nil: the transaction is for something else
	generation uint64 // of the journal after the transaction; 0: the present one

	redo    *frame.Recorder // nil: the operations are not recorded
	next    Position        // of the file with this transaction; zero: it is in no log
	content statefile.Seal  // with this transaction, without the record of the position
}

func (tx *writing) begin() error {
	meta := tx.top(metaBucket)
	key := []byte(sealKey)
	payload, err := tx.codec.Payload(meta.seed, key, meta.Get(key))
	if err != nil {
		return err
	}
	tx.seal, err = statefile.ParseSeal(payload)
	return err
}

func (tx *writing) end() error {
	meta, key := tx.top(metaBucket), []byte(sealKey)
	if err := tx.number(meta); err != nil {
		return err
	}
	return meta.Put(key, tx.value(meta, key, tx.seal.Payload()))
}

// value encodes a payload.
func (tx *writing) value(s shelf, key, payload []byte) []byte {
	if room := len(payload) + len(payload)/64 + 128; cap(tx.arena)-len(tx.arena) < room {
		// bbolt still uses the values in the previous one.
		tx.arena = make([]byte, 0, max(room, min(max(4*cap(tx.arena), minArena), 1<<20)))
	}
	start := len(tx.arena)
	tx.arena = tx.codec.Append(tx.arena, s.seed, key, payload)
	return tx.arena[start:len(tx.arena):len(tx.arena)]
}

// top returns a bucket of the top level, which exists since the file was made or which put makes.
func (tx *writing) top(name string) shelf {
	return shelf{Bucket: tx.Bucket([]byte(name)), seed: tx.codec.Seed(0, name), place: tx.redo.Place(name)}
}

// make returns the bucket at the path, and creates it if necessary.
func (tx *writing) make(path ...string) (shelf, error) {
	bucket, err := tx.CreateBucketIfNotExists([]byte(path[0]))
	s := shelf{Bucket: bucket, seed: tx.codec.Seed(0, path[0])}
	for _, name := range path[1:] {
		if err != nil {
			return shelf{}, err
		}
		bucket, err = s.CreateBucketIfNotExists([]byte(name))
		s = shelf{Bucket: bucket, seed: tx.codec.Seed(s.seed, name)}
	}
	s.place = tx.redo.Place(path...)
	tx.redo.Make(s.place)
	return s, err
}

func (tx *writing) put(s shelf, key, payload []byte) error {
	return tx.store(s, key, tx.value(s, key, payload))
}

// store puts a value that was made for this place.
func (tx *writing) store(s shelf, key, stored []byte) error {
	if old := s.Get(key); old != nil {
		tx.seal.Remove(old)
		if s.weight != nil {
			s.weight.remove(old)
		}
	}
	tx.seal.Add(stored)
	if s.weight != nil {
		s.weight.add(stored)
	}
	tx.redo.Put(s.place, key, stored)
	return s.Put(key, stored)
}

func (tx *writing) remove(s shelf, key []byte) error {
	old := s.Get(key)
	if old == nil {
		return nil
	}
	tx.seal.Remove(old)
	if s.weight != nil {
		s.weight.remove(old)
	}
	tx.redo.Remove(s.place, key)
	return s.Delete(key)
}

// drop removes a bucket with its content, if it exists.
func (tx *writing) drop(parent shelf, name string) error {
	bucket := parent.Bucket.Bucket([]byte(name))
	if bucket == nil {
		return nil
	}
	if err := tx.unseal(bucket); err != nil {
		return err
	}
	if parent.seed == tx.codec.Seed(0, routesBucket) {
		*tx.backlog(name) = weight{}
	}
	tx.redo.Drop(parent.place, name)
	return parent.DeleteBucket([]byte(name))
}

func (tx *writing) unseal(bucket *bbolt.Bucket) error {
	return bucket.ForEach(func(key, value []byte) error {
		if value == nil {
			return tx.unseal(bucket.Bucket(key))
		}
		tx.seal.Remove(value)
		return nil
	})
}

func (tx *writing) watch(c *WatchCut) error {
	if c.ID == "" {
		return errors.New("a watch without an id")
	}
	name := bucketName(c.ID)
	s, err := tx.make(watchesBucket, name)
	if err != nil {
		return err
	}
	if c.Reset {
		for _, inner := range []string{objectsBucket, intentsBucket, orderBucket, statesBucket, printsBucket} {
			if err := tx.drop(s, inner); err != nil {
				return err
			}
		}
	}
	if err := tx.put(s, []byte(stateKey), watchState{c.Applied, c.Relisting}.payload()); err != nil {
		return err
	}
	if reached := cmp.Or(c.Reached, c.Applied); reached != "" {
		if err := tx.put(s, []byte(reachedKey), []byte(reached)); err != nil {
			return err
		}
	}
	if c.Cluster != "" {
		if err := tx.put(s, []byte(clusterKey), []byte(c.Cluster)); err != nil {
			return err
		}
	}
	if c.Kept != "" {
		if err := tx.put(s, []byte(keptKey), []byte(c.Kept)); err != nil {
			return err
		}
	}
	if len(c.Put) == 0 && len(c.Deleted) == 0 {
		return nil
	}
	objects, err := tx.make(watchesBucket, name, objectsBucket)
	if err != nil {
		return err
	}
	intents, err := tx.intentShelves(name)
	if err != nil {
		return err
	}
	return tx.objects(name, objects, intents, c)
}

func (tx *writing) objects(watch string, objects shelf, intents intentShelves, c *WatchCut) error {
	none, prints := intents.none(), printsOf(tx, watch)
	for _, id := range c.Deleted {
		key := objectKey(id.Key)
		if err := tx.remove(objects, key); err != nil {
			return err
		}
		if prints.Bucket != nil {
			if err := tx.remove(prints, key); err != nil {
				return err
			}
		}
		if none {
			continue
		}
		if err := tx.endIntent(intents, id); err != nil {
			return err
		}
	}
	for key, o := range byKey(c.Put, func(o *event.Object) []byte { return objectKey(o.Key()) }) {
		if !none {
			if err := tx.supersede(intents, o); err != nil {
				return err
			}
		}
		if err := tx.put(objects, key, objectPayload(o, c.BareOnly)); err != nil {
			return err
		}
		if c.BareOnly {
			continue
		}
		if err := putPrints(tx, watch, &prints, key, o); err != nil {
			return err
		}
	}
	return nil
}

// byKey yields the elements in the order of their keys, those with equal keys as they are. bbolt
// splits a page at the end of a transaction only, and moves half of it for each key that comes
// before the others: without an order the first objects of a watch take time by the square of their
// number.
func byKey[T any](all []T, key func(T) []byte) iter.Seq2[[]byte, T] {
	type keyed struct {
		key []byte
		at  int
	}
	sorted := make([]keyed, len(all))
	for i := range all {
		sorted[i] = keyed{key(all[i]), i}
	}
	slices.SortStableFunc(sorted, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	return func(yield func([]byte, T) bool) {
		for _, k := range sorted {
			if !yield(k.key, all[k.at]) {
				return
			}
		}
	}
}

func (tx *writing) route(c *RouteCut) error {
	if c.Name == "" {
		return errors.New("a route without a name")
	}
	name := bucketName(c.Name)
	pending, err := tx.backlogShelf(name)
	if err != nil {
		return err
	}
	for _, id := range c.Removed {
		if err := tx.remove(pending, pendingKey(id)); err != nil {
			return err
		}
	}
	for key, o := range byKey(c.Put, func(o Pending) []byte { return pendingKey(o.ID) }) {
		if o.Delta == nil || o.Delta.Object() == nil {
			return fmt.Errorf("route %q: delta %d has no object", c.Name, o.ID)
		}
		if !Whole(o.Delta) {
			o.prints = printsOfDelta(tx.prints, o.Delta)
		}
		if err := tx.put(pending, key, o.payload()); err != nil {
			return err
		}
	}
	return tx.rules(name, c.Rules)
}

// The keys. Only the id of a pending delta is read from its key, so other keys that are too long
// are hashed.

func objectKey(k event.Key) []byte { return bounded(k.Namespace + "\x00" + k.Name) }

func pendingKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func bucketName(name string) string { return string(bounded(name)) }

func bounded(key string) []byte {
	if len(key) <= 1024 {
		return []byte(key)
	}
	sum := sha256.Sum256([]byte(key))
	return []byte("\x00sha256\x00" + hex.EncodeToString(sum[:]))
}
