package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// minArena is how much memory for values a transaction begins with.
	minArena = 16 << 10
	// maxArena is how much of it is kept from one transaction to the next.
	maxArena = 8 << 20
)

// Write writes a cut in one transaction. When it returns nil the cut is on disk; when it returns an error nothing of it is, and it may
// be written again. The error wraps [ErrFull] if there is no room.
func (db *DB) Write(cut Cut) error { return db.commit(&cut, nil) }

// WriteIntents writes, by the ids of their watches, objects whose first delivery is to begin. When it returns nil they are on disk.
func (db *DB) WriteIntents(intents map[string][]Identity) error { return db.commit(&Cut{}, intents) }

// commit writes a cut and behind it intents which were registered before or after it: what the cut itself holds or ends is no longer
// an intent.
func (db *DB) commit(cut *Cut, intents map[string][]Identity) error {
	cluster := cut.Cluster
	what := TransactionCut
	if cut.Empty() && cluster == "" {
		what = TransactionIntents
	}
	err := db.update(what, func(tx *writing) error {
		if cluster != "" {
			if err := tx.put(tx.top(metaBucket), []byte(clusterKey), []byte(cluster)); err != nil {
				return err
			}
		}
		over := make(map[Identity]bool)
		for i := range cut.Watches {
			if err := tx.watch(&cut.Watches[i]); err != nil {
				return err
			}
		}
		for watch, ids := range intents {
			clear(over)
			for i := range cut.Watches {
				if cut.Watches[i].ID == watch {
					cut.Watches[i].ended(over)
				}
			}
			if err := tx.intents(watch, ids, over); err != nil {
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

// ended collects the incarnations that are no intents any more.
func (c *WatchCut) ended(into map[Identity]bool) {
	for _, o := range c.Put {
		into[Identity{o.Key(), o.UID()}] = true
	}
	for _, id := range c.Deleted {
		into[id] = true
	}
}

// update runs f in a transaction and brings the seal up to date with it.
func (db *DB) update(what string, f func(tx *writing) error) error {
	if db.cfg.Around == nil {
		return db.transact(f)
	}
	return db.cfg.Around(what, func() error { return db.transact(f) })
}

func (db *DB) transact(f func(tx *writing) error) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.usable(); err != nil {
		return err
	}
	debts := make(map[string]*weight)
	err := guard(func() error {
		return db.bolt.Update(func(bolt *bbolt.Tx) error {
			tx := &writing{Tx: bolt, codec: db.codec, arena: db.arena[:0], before: db.debts, debts: debts}
			if err := tx.begin(); err != nil {
				return err
			}
			if err := f(tx); err != nil {
				return err
			}
			if db.arena = tx.arena; cap(db.arena) > maxArena {
				db.arena = nil
			}
			return tx.end()
		})
	})
	var panicked *panicError
	switch {
	case err == nil:
		for route, w := range debts {
			db.debts[route] = *w
		}
	case errors.As(err, &panicked):
		db.broken = err
	case !errors.Is(err, berrors.ErrMaxSizeReached):
		db.suspect = true
	}
	return full(err)
}

// usable makes sure that there is an open file. After a failed write it is opened anew: bbolt may have lost its memory map.
func (db *DB) usable() error {
	if db.codec == nil {
		return ErrClosed
	}
	if db.broken != nil {
		return db.broken
	}
	if db.suspect || db.bolt == nil {
		if db.bolt != nil {
			if err := guard(db.bolt.Close); err != nil {
				return err
			}
			db.bolt = nil
		}
		if _, err := verify(db.cfg.Path, db.codec); err != nil {
			return err
		}
		if err := db.openBolt(); err != nil {
			return err
		}
		db.suspect = false
	}
	return db.inPlace()
}

// inPlace makes sure that what is written will be found: the file may have been removed or replaced behind our back.
func (db *DB) inPlace() error {
	there, err := os.Stat(db.cfg.Path)
	if err == nil && os.SameFile(there, db.file) {
		return nil
	}
	return fmt.Errorf("%s was removed or replaced while it was in use: put it back, or restart to begin a new one", db.cfg.Path)
}

// writing is a write transaction.
type writing struct {
	*bbolt.Tx

	codec *codec
	arena []byte // bbolt keeps the values that it is given until the end
	seal  seal

	before map[string]weight  // by route, see DB.debts
	debts  map[string]*weight // those that change
}

func (tx *writing) begin() error {
	meta := tx.top(metaBucket)
	key := []byte(sealKey)
	payload, err := tx.codec.payload(meta.seed, key, meta.Get(key))
	if err != nil {
		return err
	}
	tx.seal, err = parseSeal(payload)
	return err
}

func (tx *writing) end() error {
	meta, key := tx.top(metaBucket), []byte(sealKey)
	return meta.Put(key, tx.value(meta, key, tx.seal.payload()))
}

// value makes the value of a payload.
func (tx *writing) value(s shelf, key, payload []byte) []byte {
	if room := len(payload) + len(payload)/64 + 128; cap(tx.arena)-len(tx.arena) < room {
		// What is in the one before stays with bbolt.
		tx.arena = make([]byte, 0, max(room, min(max(4*cap(tx.arena), minArena), 1<<20)))
	}
	start := len(tx.arena)
	tx.arena = tx.codec.append(tx.arena, s.seed, key, payload)
	return tx.arena[start:len(tx.arena):len(tx.arena)]
}

// top returns a bucket of the top level, which exists since the file was made or which put makes.
func (tx *writing) top(name string) shelf {
	return shelf{Bucket: tx.Bucket([]byte(name)), seed: tx.codec.seed(0, name)}
}

// make returns the bucket at the path, made if need be.
func (tx *writing) make(path ...string) (shelf, error) {
	bucket, err := tx.CreateBucketIfNotExists([]byte(path[0]))
	s := shelf{Bucket: bucket, seed: tx.codec.seed(0, path[0])}
	for _, name := range path[1:] {
		if err != nil {
			return shelf{}, err
		}
		bucket, err = s.CreateBucketIfNotExists([]byte(name))
		s = shelf{Bucket: bucket, seed: tx.codec.seed(s.seed, name)}
	}
	return s, err
}

func (tx *writing) put(s shelf, key, payload []byte) error {
	return tx.store(s, key, tx.value(s, key, payload))
}

// store puts a value that was made for this place.
func (tx *writing) store(s shelf, key, value []byte) error {
	if old := s.Get(key); old != nil {
		tx.seal.remove(old)
		if s.weight != nil {
			s.weight.remove(old)
		}
	}
	tx.seal.add(value)
	if s.weight != nil {
		s.weight.add(value)
	}
	return s.Put(key, value)
}

func (tx *writing) remove(s shelf, key []byte) error {
	old := s.Get(key)
	if old == nil {
		return nil
	}
	tx.seal.remove(old)
	if s.weight != nil {
		s.weight.remove(old)
	}
	return s.Delete(key)
}

// drop removes a bucket with all that is in it, if it is there.
func (tx *writing) drop(parent shelf, name string) error {
	bucket := parent.Bucket.Bucket([]byte(name))
	if bucket == nil {
		return nil
	}
	if err := tx.unseal(bucket); err != nil {
		return err
	}
	return parent.DeleteBucket([]byte(name))
}

func (tx *writing) unseal(bucket *bbolt.Bucket) error {
	return bucket.ForEach(func(key, value []byte) error {
		if value == nil {
			return tx.unseal(bucket.Bucket(key))
		}
		tx.seal.remove(value)
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
		for _, inner := range []string{objectsBucket, intentsBucket, orderBucket} {
			if err := tx.drop(s, inner); err != nil {
				return err
			}
		}
	}
	if err := tx.put(s, []byte(stateKey), watchState{c.Fed, c.Relisting}.payload()); err != nil {
		return err
	}
	if c.Cluster != "" {
		if err := tx.put(s, []byte(clusterKey), []byte(c.Cluster)); err != nil {
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
	return tx.objects(objects, intents, c)
}

func (tx *writing) objects(objects shelf, intents intentShelves, c *WatchCut) error {
	for _, id := range c.Deleted {
		if err := errors.Join(tx.remove(objects, objectKey(id.Key)), tx.endIntent(intents, id)); err != nil {
			return err
		}
	}
	for _, o := range c.Put {
		if err := tx.endIntent(intents, Identity{o.Key(), o.UID()}); err != nil {
			return err
		}
		if err := tx.put(objects, objectKey(o.Key()), objectPayload(o, c.BareOnly)); err != nil {
			return err
		}
	}
	return nil
}

func (tx *writing) route(c *RouteCut) error {
	if c.Name == "" {
		return errors.New("a route without a name")
	}
	name := bucketName(c.Name)
	if c.Reset {
		s, err := tx.make(routesBucket, name)
		if err != nil {
			return err
		}
		if err := errors.Join(tx.drop(s, owedBucket), tx.drop(s, rulesBucket)); err != nil {
			return err
		}
		*tx.debt(name) = weight{}
	}
	owed, err := tx.debtor(name)
	if err != nil {
		return err
	}
	for _, id := range c.Removed {
		if err := tx.remove(owed, owedKey(id)); err != nil {
			return err
		}
	}
	for i := range c.Put {
		if o := &c.Put[i]; o.Delta == nil || o.Delta.Object() == nil {
			return fmt.Errorf("route %q: delta %d has no object", c.Name, o.ID)
		} else if err := tx.put(owed, owedKey(o.ID), o.payload()); err != nil {
			return err
		}
	}
	return tx.rules(name, c.Rules)
}

// The keys. Nothing is read back from them but an owed delta's id, so what is too long for a key is hashed.

func objectKey(k event.Key) []byte { return bounded(k.Namespace + "\x00" + k.Name) }

func owedKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func bucketName(name string) string { return string(bounded(name)) }

func bounded(key string) []byte {
	if len(key) <= 1024 {
		return []byte(key)
	}
	sum := sha256.Sum256([]byte(key))
	return []byte("\x00sha256\x00" + hex.EncodeToString(sum[:]))
}
