package statefile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// keptAside is the number of damaged files that are kept for inspection.
const keptAside = 3

const asideMark = ".corrupt-"

// quarantine renames a damaged file.
func (f *File) quarantine(reason error) error {
	if f.bolt != nil {
		_ = f.bolt.Close() // the file is unusable
		f.bolt = nil
	}
	name := f.cfg.Path + asideMark + time.Now().UTC().Format("20060102T150405.000Z")
	if err := os.Rename(f.cfg.Path, name); err != nil {
		return fmt.Errorf("%w, and it cannot be moved away: %w", reason, fileerr.Cause(err))
	}
	f.quarantined = name
	f.cfg.Log.Error("the state file is damaged: it was moved away and a new one begun; all sources are listed again, and pending deltas and deletions of the meantime are lost",
		"file", f.cfg.Path, "kept", name, "err", reason)
	f.clearAside(name)
	return folder.Sync(filepath.Dir(f.cfg.Path))
}

// clearAside removes the oldest of the quarantined files, never the newest one, even if the clock
// went back. A file that cannot be removed does not prevent the start.
func (f *File) clearAside(now string) {
	others, err := filepath.Glob(globEscape(f.cfg.Path) + asideMark + "*")
	if err != nil {
		f.cfg.Log.Warn("earlier damaged state files cannot be listed", "file", f.cfg.Path, "err", err)
		return
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == now })
	slices.Sort(others) // by time, because their names begin with it
	for _, old := range others[:max(0, len(others)-(keptAside-1))] {
		if err := os.Remove(old); err != nil {
			f.cfg.Log.Warn("an earlier damaged state file cannot be removed", "file", old, "err", fileerr.Cause(err))
			continue
		}
		f.cfg.Log.Info("an earlier damaged state file was removed", "file", old)
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
