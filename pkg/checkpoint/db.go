package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Config says where the state is kept.
type Config struct {
	// Path of the state file, by custom state.db. Its folder is made with mode 0700 if it does not exist. Beside it lie the lock
	// (.lock), the last three files that were put aside (.corrupt-<time>) and, while Open runs, what it makes (.new, .compact).
	Path string
	// MaxSize in bytes is what the file may grow to; 0: no limit. A cut that needs more fails with ErrFull. The file is grown in steps
	// of 16 MiB.
	MaxSize int64
	Log     *slog.Logger // nil: nothing is logged
	// Around, if it is not nil, is called for each transaction with what it writes (TransactionCut, …), and calls it once or, with an
	// error of its own, not at all. It is for simulations, in which a disk is slow or full, or the process ends before or after a
	// transaction. Several may be called at the same time.
	Around func(what string, transaction func() error) error
}

// What a transaction writes, see [Config.Around]. A cut may have intents with it.
const (
	TransactionCut     = "cut"
	TransactionIntents = "intents"
	TransactionLetters = "letters"
	TransactionForget  = "forget"
	TransactionRename  = "rename"
)

// DB is the state file. It is safe for concurrent use: writes come one after the other, reads wait for them.
type DB struct {
	cfg         Config
	codec       *codec
	lock        *lockFile
	quarantined string

	mu      sync.RWMutex
	bolt    *bbolt.DB
	file    os.FileInfo // that bolt has open
	suspect bool        // a write failed in a way after which bbolt is opened anew
	broken  error       // for good, until the next start
	cluster string
	debts   map[string]weight // by the names of the routes' buckets
	arena   []byte            // the values of a transaction that is being written
}

// Open opens the state file and makes it if it is not there. It reads the whole file once; see the package comment for what it finds.
// The error is a *LockedError, a *NewerError or one of the file system; a damaged file is no error, see [DB.Quarantined]. A file of which
// most is free is rewritten, see shrink.
func Open(cfg Config) (*DB, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("the state folder cannot be made: %w", err)
	}
	codec, err := newCodec()
	if err != nil {
		return nil, err
	}
	db := &DB{cfg: cfg, codec: codec}
	if db.lock, err = lock(cfg.Path + ".lock"); err != nil {
		codec.close()
		return nil, err
	}
	if err := db.open(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (db *DB) open() error {
	err := db.load()
	if errors.Is(err, ErrCorrupt) {
		if err := db.quarantine(err); err != nil {
			return err
		}
		err = db.load()
	}
	return err
}

// load opens the file, verified, or a new one.
func (db *DB) load() error {
	found, err := verify(db.cfg.Path, db.codec)
	if errors.Is(err, fs.ErrNotExist) {
		if err := db.create(); err != nil {
			return fmt.Errorf("the state file cannot be made: %w", err)
		}
		found.format = Format
	} else if err != nil {
		return fmt.Errorf("%s: %w", db.cfg.Path, err)
	}
	if found.fellBack {
		db.cfg.Log.Warn("the last transaction of the state file is unreadable, the one before it is used", "file", db.cfg.Path)
	}
	if err := os.Chmod(db.cfg.Path, 0o600); err != nil {
		return err
	}
	db.shrink(found)
	if err := db.openBolt(); err != nil {
		return fmt.Errorf("%s: %w", db.cfg.Path, err)
	}
	if found.format != Format {
		if err := db.stamp(db.bolt); err != nil {
			return fmt.Errorf("%s: %w", db.cfg.Path, err)
		}
	}
	return db.view(func(tx *reading) (err error) {
		db.cluster, err = tx.cluster()
		return err
	})
}

func (db *DB) options() *bbolt.Options {
	return &bbolt.Options{
		Timeout: lockWait, MaxSize: int(db.cfg.MaxSize), PageSize: 4096,
		FreelistType: bbolt.FreelistMapType, NoStatistics: true,
	}
}

func (db *DB) openBolt() error {
	return guard(func() error {
		bolt, err := bbolt.Open(db.cfg.Path, 0o600, db.options())
		switch {
		case errors.Is(err, berrors.ErrTimeout): // somebody who does not know of our lock file
			return &LockedError{Path: db.cfg.Path}
		case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		case err != nil:
			return err
		}
		db.bolt = bolt
		if db.file, err = os.Stat(db.cfg.Path); err != nil {
			return err
		}
		return bolt.View(func(tx *bbolt.Tx) error {
			db.debts = (&reading{tx, db.codec}).debts()
			return nil
		})
	})
}

// create makes a file that is complete before it gets its name: one that is found empty or half was damaged later.
func (db *DB) create() error {
	made := db.cfg.Path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	options := db.options()
	options.MaxSize = 0 // the first pages are always granted
	bolt, err := bbolt.Open(made, 0o600, options)
	if err != nil {
		return err
	}
	if err := errors.Join(db.stamp(bolt), bolt.Close()); err != nil {
		return err
	}
	if err := os.Rename(made, db.cfg.Path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(db.cfg.Path))
}

// stamp writes the format number, and a seal if there is none.
func (db *DB) stamp(bolt *bbolt.DB) error {
	return full(bolt.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
		if err != nil {
			return err
		}
		if meta.Get([]byte(sealKey)) == nil {
			var empty seal
			value := db.codec.append(nil, db.codec.seed(0, metaBucket), []byte(sealKey), empty.payload())
			if err := meta.Put([]byte(sealKey), value); err != nil {
				return err
			}
		}
		return meta.Put([]byte(formatKey), formatValue(Format, oldestReader))
	}))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Quarantined returns the name under which Open put a damaged file aside; empty: it was in order.
func (db *DB) Quarantined() string { return db.quarantined }

// Cluster returns the identity of the cluster that the state is about; empty: none was written yet.
func (db *DB) Cluster() string {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.cluster
}

// Size returns the size of the file in bytes. A part of it may be free for new values: the file shrinks at [Open] only.
func (db *DB) Size() int64 {
	info, err := os.Stat(db.cfg.Path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Close waits for what is being written and gives the file free. It may be called twice.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.codec == nil {
		return nil
	}
	var err error
	if db.bolt != nil && db.broken == nil { // after a panic a lock inside may be held for ever
		err = guard(db.bolt.Close)
	}
	db.bolt = nil
	db.codec.close()
	db.codec = nil
	return errors.Join(err, db.lock.release())
}
