// Package file is the sink kind `file`: it appends events to a file, one CloudEvent in JSON per
// line.
//
// A reader of the file finds complete lines only. A full disk or a crash can leave a part of a
// line: the sink removes this part before the next write, and the event is delivered again. The
// file may be renamed or removed at any time, for example by logrotate: the sink checks the name
// before each write and opens a new file if necessary.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// sinkConfig is the configuration below `file:`.
type sinkConfig struct {
	Path     string      `yaml:"path,required,written" doc:"Path of the file. Its folder must exist."`
	MaxSize  config.Size `yaml:"maxSize" default:"100Mi" min:"4Ki" doc:"Maximum size of the file. When it is reached, the file is rotated: its new name contains the time. A larger write gets a file of its own."`
	MaxFiles int         `yaml:"maxFiles" default:"10" min:"0" doc:"Number of rotated files that are kept. Beyond it the oldest is removed. 0: no rotation, the file grows."`
	Fsync    bool        `yaml:"fsync" doc:"An event is delivered when it is on the disk, and not only in the system's memory."`
}

// Kind returns the kind of sink `file`.
func Kind() plugins.SinkKind {
	return kind{plugins.SinkDefinition[sinkConfig]{New: newSink, Definition: plugins.Definition[sinkConfig]{
		Name: "file",
		Doc:  "Appends a line per event, a CloudEvent in JSON, to a file. It rotates the file, and the file may be renamed at any time.",
		Example: `path: /var/log/deltarouter/events.jsonl
maxSize: 100Mi
maxFiles: 10
fsync: false
`,
	}}}
}

type kind struct {
	plugins.SinkDefinition[sinkConfig]
}

var _ plugins.Prober = kind{}

func newSink(_ context.Context, c sinkConfig, env plugins.SinkEnv) (plugins.Sink, error) {
	return &sink{name: env.Name, lock: make(chan struct{}, 1), log: &log{cfg: c, now: time.Now}}, nil
}

type sink struct {
	name string
	lock chan struct{} // contains an element during a write
	log  *log          // guarded by lock
}

// Write implements [plugins.Sink]. Every error means that the sink is unavailable, because a full
// disk or a missing folder may become usable again. A write to a hung disk cannot be cancelled.
// When ctx is done, Write returns and the operation continues in the background: its events count
// as not delivered, although they may be written.
func (s *sink) Write(ctx context.Context, events []event.Event) []error {
	size := 0
	for i := range events {
		size += len(events[i].Data) + 512
	}
	lines, ends := make([]byte, 0, size), make([]int, len(events))
	for i := range events {
		lines = append(events[i].AppendJSON(lines), '\n')
		ends[i] = len(lines)
	}
	if len(lines) == 0 {
		return nil
	}
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return s.undelivered(ends, 0, ctx.Err())
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-s.lock }()
		n, err := s.log.append(lines, ends)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		if r.err == nil {
			return nil
		}
		return s.undelivered(ends, r.n, fileerr.Explain(r.err))
	case <-ctx.Done():
		return s.undelivered(ends, 0, ctx.Err())
	}
}

// undelivered returns an error for each event whose line does not end within the first n bytes.
func (s *sink) undelivered(ends []int, n int, err error) []error {
	err = fmt.Errorf("file %q: %w", s.name, err)
	errs := make([]error, len(ends))
	for i, end := range ends {
		if end > n {
			errs[i] = err
		}
	}
	return errs
}

// Close implements [plugins.Sink]. It waits for a running write.
func (s *sink) Close(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
	case <-ctx.Done():
		return errors.New("the disk does not answer, the last lines may be missing")
	}
	defer func() { <-s.lock }()
	return fileerr.Explain(s.log.close())
}

// Probe implements [plugins.Prober]. It tests whether the file can be written or created, and
// leaves no trace.
func (kind) Probe(_ context.Context, node config.Node) error {
	var c sinkConfig
	if err := node.Decode(&c).Err(); err != nil {
		return err
	}
	f, err := openOwn(c.Path, os.O_WRONLY|os.O_APPEND)
	if err == nil {
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", c.Path)
		}
		return errors.Join(err, f.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fileerr.Explain(err)
	}
	made, err := os.CreateTemp(filepath.Dir(c.Path), ".probe-")
	if err != nil {
		return fmt.Errorf("no file can be created in the folder %s: %w", filepath.Dir(c.Path), fileerr.Cause(err))
	}
	return errors.Join(made.Close(), os.Remove(made.Name()))
}
