package kubestatus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/fileerr"
)

// Saved is an object as the state folder has it, for a start without the API server: the backlog of
// its route is delivered, and the route misses no delta.
type Saved struct {
	*Object

	// Accepted is the text that runs: the former one, if the present one has mistakes. nil: none.
	Accepted []byte
}

// record is a Saved on disk.
type record struct {
	Kind       Kind   `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Created    string `json:"created"`
	Text       string `json:"text"`
	Runs       bool   `json:"runs,omitempty"` // the text does
	Former     string `json:"former,omitempty"`
}

// Encode returns the records of objects by their keys.
func Encode(all []Saved) (map[string][]byte, error) {
	records := make(map[string][]byte, len(all))
	for _, s := range all {
		r := record{
			Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, UID: s.UID, Generation: s.Generation, Created: s.Created,
			Text: string(s.Text), Former: string(s.Accepted),
		}
		if r.Former == r.Text {
			r.Former, r.Runs = "", true
		}
		text, err := json.Marshal(&r)
		if err != nil {
			return nil, err
		}
		records[s.Key.String()] = text
	}
	return records, nil
}

// Decode is the inverse of Encode.
func Decode(records map[string][]byte) (all []Saved, err error) {
	for key, text := range records {
		var r record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("the record of %s: %w", key, err)
		}
		s := Saved{Object: &Object{
			Key: Key{r.Kind, r.Namespace, r.Name}, UID: r.UID, Generation: r.Generation, Created: r.Created, Text: []byte(r.Text),
		}}
		switch {
		case r.Runs:
			s.Accepted = s.Text
		case r.Former != "":
			s.Accepted = []byte(r.Former)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Saved) int { return byAge(a.Object, b.Object) })
	return all, nil
}

// formerFile is the file in state.dir that had the objects before the state file did.
const formerFile = "customresources.json"

// LoadFormer reads the objects of a state folder whose state file has none yet. A file that cannot
// be read is ignored: the API server has the objects.
func LoadFormer(dir string, log *slog.Logger) (all []Saved) {
	var file struct {
		Objects  []*Object
		Accepted map[string][]byte // by the beginning of the names of routes, the object and its uid
	}
	path := filepath.Join(dir, formerFile)
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file: remove it")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the routes of objects wait for the API server, because those of the last run cannot be read", "file", path, "err", fileerr.Explain(err))
		}
		return nil
	}
	for _, o := range file.Objects {
		s := Saved{Object: o}
		for key, text := range file.Accepted {
			if strings.HasSuffix(key, "\x00"+o.Key.String()+"\x00"+o.UID) {
				s.Accepted = text
			}
		}
		all = append(all, s)
	}
	return all
}

// RemoveFormer removes that file, if there is one.
func RemoveFormer(dir string) error {
	err := os.Remove(filepath.Join(dir, formerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fileerr.Explain(err)
}
