package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptAside is how many damaged files are kept for whoever wants to look at them.
const keptAside = 3

const asideMark = ".corrupt-"

// quarantine renames a damaged file.
func (db *DB) quarantine(reason error) error {
	if db.bolt != nil {
		_ = db.bolt.Close() // it is given up
		db.bolt = nil
	}
	name := db.cfg.Path + asideMark + time.Now().UTC().Format("20060102T150405.000Z")
	if err := os.Rename(db.cfg.Path, name); err != nil {
		return fmt.Errorf("%w, and it cannot be put aside: %w", reason, err)
	}
	db.quarantined = name
	db.cfg.Log.Error("the state file is damaged: it was put aside and a new one begun; everything is listed anew, and what was owed or deleted meanwhile is lost",
		"file", db.cfg.Path, "kept", name, "err", reason)
	db.clearAside(name)
	return syncFolder(filepath.Dir(db.cfg.Path))
}

// clearAside removes the oldest of the files that were put aside, never the one that was put there now, whatever the clock says. One
// that cannot be removed is no reason not to start.
func (db *DB) clearAside(now string) {
	others, err := filepath.Glob(globEscape(db.cfg.Path) + asideMark + "*")
	if err != nil {
		db.cfg.Log.Warn("damaged state files of before cannot be found", "file", db.cfg.Path, "err", err)
		return
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == now })
	slices.Sort(others) // by time, as the names are made
	for _, old := range others[:max(0, len(others)-(keptAside-1))] {
		if err := os.Remove(old); err != nil {
			db.cfg.Log.Warn("a damaged state file of before cannot be removed", "file", old, "err", err)
			continue
		}
		db.cfg.Log.Info("a damaged state file of before was removed", "file", old)
	}
}

// globEscape makes a pattern that matches only the path itself.
func globEscape(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}
