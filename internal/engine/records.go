package engine

import (
	"bytes"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
)

// memoryOfObjects is the name of the records of the routes that are objects. They are in the place
// of a kv, so they are in backups and exports; no handler has such a name.
const memoryOfObjects = "router:customResources"

// Objects returns the records of the routes that are objects, by their keys.
func (s *State) Objects() (map[string][]byte, error) {
	saved, err := s.db.LoadMemory(memoryOfObjects)
	if err != nil {
		return nil, fmt.Errorf("state.dir: %w", err)
	}
	records := make(map[string][]byte, len(saved))
	for _, v := range saved {
		records[v.Key] = v.Value
	}
	return records, nil
}

// SetObjects replaces these records. It writes the differences in one transaction. Calls do not
// overlap.
func (s *State) SetObjects(records map[string][]byte) error {
	before, err := s.Objects()
	if err != nil {
		return err
	}
	cut := checkpoint.MemoryCut{Handler: memoryOfObjects}
	for key, record := range records {
		if now, ok := before[key]; !ok || !bytes.Equal(now, record) {
			cut.Put = append(cut.Put, checkpoint.Value{Key: key, Value: record})
		}
	}
	for key := range before {
		if _, ok := records[key]; !ok {
			cut.Removed = append(cut.Removed, key)
		}
	}
	if len(cut.Put) == 0 && len(cut.Removed) == 0 {
		return nil
	}
	return s.db.Write(checkpoint.Cut{Memories: []checkpoint.MemoryCut{cut}})
}
