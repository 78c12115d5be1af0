package checkpoint

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/checkpoint/statefile"
	"github.com/deltarouter/deltarouter/internal/fingerprint"
)

// Config has the location and the limits of the state file.
type Config struct {
	// Path of the state file, by custom state.db. Its folder is made with mode 0700 if it does not
	// exist. The folder also has the lock (.lock), the journal (.journal), the last three
	// quarantined files (.corrupt-<time>), copies from before conversions (.format-<number>), and
	// temporary files: of Open (.new, .compact), of a backup (.backup), and in a fleet of a
	// snapshot (.snapshot).
	Path string
	// MaxSize is the largest size of the file in bytes; 0: no limit. A cut that needs more fails
	// with ErrFull. The file grows in steps of 16 MiB.
	MaxSize int64
	Log     *slog.Logger // nil: no logs
	// Around, if set, is called for each transaction with its kind (TransactionCut, …). It calls
	// transaction once or, with an error of its own, not at all. It is for simulations of a slow or
	// full disk, and of crashes before or after a transaction. Calls may be concurrent.
	Around func(what string, transaction func() error) error

	// Shipped, if set, is called with the frame of each transaction, in order, once the transaction
	// is on disk. It must not block or call back. If a number is left out, a follower needs a
	// snapshot.
	Shipped func(f Frame)
	// Confirm, if set, is called after Shipped, without a lock: the transaction ends when it
	// returns.
	Confirm func(p Position)
	// Term is the term of these frames: another one, and a higher one, than those of all frames of
	// other leaders.
	Term uint64

	conversions []conversion // nil: those of this version; tests set others
}

// The kinds of transactions, see [Config.Around]. A cut may include intents.
const (
	TransactionCut     = "cut"
	TransactionIntents = "intents"
	TransactionLetters = "letters"
	TransactionForget  = "forget"
	TransactionApply   = "apply"
)

// DB is the state file. It is safe for concurrent use: writes come one after the other, reads wait
// for them.
type DB struct {
	cfg  Config
	file *statefile.File

	writing sync.Mutex // held by the transaction that has the arena
	arena   []byte     // the values of the running transaction

	redone int // the size of the last frame

	journal journal

	prints atomic.Pointer[fingerprint.Key] // nil: there is none

	mu       sync.RWMutex
	position Position // zero: the file is in no log
	cluster  string
	backlogs map[string]weight // by the names of the routes' buckets
}

// conversion changes the content of a file to a format, see statefile.Conversion.
type conversion struct {
	to  int
	run func(tx *writing) error
}

// conversions returns the conversions of this version, ascending. There is none yet: each of the
// formats 2 to 8 only adds to the format before, whose files are read as they are.
func conversions() []conversion { return nil }

// of makes the conversion of a file.
func (c conversion) of() statefile.Conversion {
	return statefile.Conversion{To: c.to, Run: func(bolt *bbolt.Tx, codec *statefile.Codec) error {
		tx := &writing{Tx: bolt, codec: codec, backlogs: make(map[string]*weight)}
		if err := tx.begin(); err != nil {
			return err
		}
		if err := c.run(tx); err != nil {
			return err
		}
		return tx.end()
	}}
}

// Open opens the state file, or makes it if it does not exist. It reads the whole file once; see
// the package comment for the checks. The error is a *LockedError, a *NewerError, a
// *ConversionError or one of the file system; a damaged file is no error, see [DB.Quarantined]. A
// mostly free file is rewritten, and one of an older format converted if necessary.
func Open(cfg Config) (*DB, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	db := &DB{cfg: cfg}
	var err error
	db.file, err = statefile.Open(db.fileConfig())
	if err != nil {
		return nil, err
	}
	if err := db.openJournal(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := begin(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if db.file.Format() != Format {
		// the leftovers only take room
		if err := db.update(TransactionForget, tidy); err != nil {
			cfg.Log.Warn("records of an older version could not be removed from the state file", "file", cfg.Path, "err", err)
		}
	}
	return db, nil
}

func (db *DB) fileConfig() statefile.Config {
	cfg := statefile.Config{Path: db.cfg.Path, MaxSize: db.cfg.MaxSize, Log: db.cfg.Log, Opened: db.opened}
	steps := db.cfg.conversions
	if steps == nil {
		steps = conversions()
	}
	for _, c := range steps {
		cfg.Conversions = append(cfg.Conversions, c.of())
	}
	return cfg
}

// opened reads the parts of the file that are kept in memory.
func (db *DB) opened(bolt *bbolt.Tx, codec *statefile.Codec) (err error) {
	tx := &reading{Tx: bolt, codec: codec}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.backlogs = tx.backlogs()
	if db.journal.generation, err = tx.generation(); err != nil {
		return err
	}
	if db.position, err = tx.position(); err != nil {
		return err
	}
	db.cluster, err = tx.cluster()
	return err
}

// Quarantined returns the new name of a damaged file that Open moved away; empty: the file was
// intact.
func (db *DB) Quarantined() string { return db.file.Quarantined() }

// Size returns the size of the file in bytes. A part of it may be free for new values: the file
// shrinks at [Open] only.
func (db *DB) Size() int64 { return db.file.Size() }

// Room returns the number of bytes that the router may still write to the disk of the file; false:
// the system does not tell.
func (db *DB) Room() (bytes int64, known bool) { return folder.Room(filepath.Dir(db.cfg.Path)) }

// Backup makes a copy of the file as of its last transaction, beside it. Writes go on meanwhile.
// There is one backup at a time, and Close removes it.
func (db *DB) Backup(ctx context.Context) (*Backup, error) {
	if err := db.settle(); err != nil {
		return nil, err
	}
	return db.file.Backup(ctx)
}

// CopyTo writes a copy of a file of [OpenReadOnly].
func (db *DB) CopyTo(ctx context.Context, w io.Writer) error { return db.file.CopyTo(ctx, w) }

// Cluster returns the identity of the cluster of the state; empty: none was written yet.
func (db *DB) Cluster() string {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.cluster
}

// Close waits for a running write and releases the file. It may be called twice.
func (db *DB) Close() error { return errors.Join(db.file.Close(), db.closeJournal()) }

// Format is the number of the format that this version writes, see the package comment.
const Format = statefile.Format

var (
	// ErrFull is wrapped by the error of a write without enough room: the disk is full, or the file
	// has reached Config.MaxSize.
	ErrFull = statefile.ErrFull
	// ErrCorrupt is wrapped by the error of a read of damaged data.
	ErrCorrupt = statefile.ErrCorrupt
	// ErrClosed is returned after [DB.Close].
	ErrClosed = statefile.ErrClosed
	// ErrBackupRuns is returned by [DB.Backup] while another backup is made or read.
	ErrBackupRuns = statefile.ErrBackupRuns
)

type (
	// Backup is a copy of the state file.
	Backup = statefile.Backup
	// LockedError says that another router uses the state folder.
	LockedError = folder.LockedError
	// NewerError says that a newer version wrote the state file in a format that this version
	// cannot read. The file is left unchanged.
	NewerError = statefile.NewerError
	// ConversionError says that the state file could not be converted to the format of this
	// version. The file is left unchanged.
	ConversionError = statefile.ConversionError
)

// The buckets and records with a fixed name.
const (
	metaBucket    = statefile.MetaBucket
	watchesBucket = "watches"
	routesBucket  = "routes"
	objectsBucket = "objects"
	intentsBucket = "intents"
	orderBucket   = "order"
	statesBucket  = "states"
	printsBucket  = "fingerprints"
	pendingBucket = "owed"
	rulesBucket   = "rules"
	lettersBucket = "undelivered" // behind meta, which readers want first
	entriesBucket = "entries"
	valuesBucket  = "values"

	memoriesBucket = "remembered" // behind meta, too

	sealKey     = statefile.SealKey
	clusterKey  = "cluster"
	keptKey     = "kept"
	reachedKey  = "reached"
	positionKey = "position"
	journalKey  = "journal"
	stateKey    = "state"
)
