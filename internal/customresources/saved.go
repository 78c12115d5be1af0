package customresources

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/deltarouter/deltarouter/internal/checkpoint/folder"
	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// savedFile is the file in state.dir with the objects of the last run.
const savedFile = "customresources.json"

// Saved has the routes of the last run, for a start without the API server: their backlogs are
// delivered, and they miss no delta.
type Saved struct {
	Objects []*Object
	// Accepted has the texts of the fragments that run, by their keys: the former versions, if the
	// present ones have mistakes.
	Accepted map[string][]byte
}

// Load reads the objects of the last run. A file that cannot be read is ignored: the API server has
// the objects.
func Load(dir string, log *slog.Logger) (saved Saved) {
	if dir == "" {
		return saved
	}
	path := filepath.Join(dir, savedFile)
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file: remove it")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the routes of objects wait for the API server, because those of the last run cannot be read", "file", path, "err", fileerr.Explain(err))
		return Saved{}
	}
	return saved
}

// Save writes the objects for the next start. The file is replaced as a whole, also if the power
// fails meanwhile.
func (s Saved) Save(dir string) error {
	if dir == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, savedFile)
	err = writeSynced(path+".new", text)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fileerr.Explain(err)
	}
	return folder.Sync(dir)
}

// writeSynced writes a file that is complete after a loss of power, too.
func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Sync(), file.Close())
}
