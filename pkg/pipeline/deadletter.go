package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Letter is a delta that could not be delivered.
type Letter struct {
	Time     time.Time
	Route    string
	Sink     string // which refused it; empty: it did not get as far as a sink
	Err      error
	Attempts int
	Delta    *event.Delta
}

// DeadLetterer keeps what could not be delivered. It is safe for concurrent use.
type DeadLetterer interface {
	// DeadLetter keeps a letter. If it returns an error, the route goes on owing the delta, and tries again later.
	DeadLetter(ctx context.Context, letter Letter) error
}

// LogDeadLetters keeps nothing: it says in the log what is lost, without the objects. It is for a router that has no state folder.
type LogDeadLetters struct{ Log *slog.Logger }

// DeadLetter implements [DeadLetterer]. It never fails.
func (l *LogDeadLetters) DeadLetter(ctx context.Context, letter Letter) error {
	l.Log.LogAttrs(ctx, slog.LevelError, "a delta is lost: it could not be delivered, and there is no state folder to keep it in",
		slog.String("route", letter.Route), slog.String("sink", letter.Sink), slog.String("delta", letter.Delta.String()),
		slog.Int("attempts", letter.Attempts), slog.Any("error", letter.Err))
	return nil
}

// FileDeadLetters appends letters to a file of JSON lines, which only its owner can read. A letter that DeadLetter returned nil for
// outlives the process, but maybe not a power failure.
//
// A line is {"time", "route", "sink", "error", "attempts", "delta": {"op", "source", "key", "uid", "resourceVersion", "initial",
// "stale", "object", "oldObject"}}, where empty members are left out. Of a Secret the objects are left out.
type FileDeadLetters struct {
	mu   sync.Mutex
	file *os.File
}

// OpenDeadLetters opens the file and makes it if there is none. The last line may have been cut by a crash: then the next letter
// starts a new one.
func OpenDeadLetters(path string) (*FileDeadLetters, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	if err := endLine(file); err != nil {
		return nil, fmt.Errorf("dead letters: %w", closeAfter(file, err))
	}
	return &FileDeadLetters{file: file}, nil
}

// DeadLetter implements [DeadLetterer]. After an error the file is as it was.
func (f *FileDeadLetters) DeadLetter(_ context.Context, letter Letter) error {
	line, err := letter.line()
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	if _, err := f.file.Write(line); err != nil {
		if cut := f.file.Truncate(info.Size()); cut != nil {
			return fmt.Errorf("dead letters: %w (and the half-written line stays: %w)", err, cut)
		}
		return fmt.Errorf("dead letters: %w", err)
	}
	return nil
}

// Close closes the file.
func (f *FileDeadLetters) Close() error { return f.file.Close() }

func endLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, info.Size()-1); err != nil && err != io.EOF {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = file.WriteString("\n")
	return err
}

func closeAfter(file *os.File, err error) error {
	if e := file.Close(); e != nil {
		return fmt.Errorf("%w (%w)", err, e)
	}
	return err
}

type letterLine struct {
	Time     time.Time   `json:"time"`
	Route    string      `json:"route"`
	Sink     string      `json:"sink,omitempty"`
	Error    string      `json:"error"`
	Attempts int         `json:"attempts"`
	Delta    letterDelta `json:"delta"`
}

type letterDelta struct {
	Op              string          `json:"op"`
	Source          string          `json:"source"`
	Key             string          `json:"key"`
	UID             string          `json:"uid,omitempty"`
	ResourceVersion string          `json:"resourceVersion,omitempty"`
	Initial         bool            `json:"initial,omitempty"`
	Stale           bool            `json:"stale,omitempty"`
	Object          json.RawMessage `json:"object,omitempty"`
	OldObject       json.RawMessage `json:"oldObject,omitempty"`
}

func (l Letter) line() ([]byte, error) {
	d, o := l.Delta, l.Delta.Object()
	out := letterLine{
		Time: l.Time.UTC(), Route: l.Route, Sink: l.Sink, Error: l.Err.Error(), Attempts: l.Attempts,
		Delta: letterDelta{
			Op: d.Op.String(), Source: d.Source, Key: d.Key().String(), UID: o.UID(), ResourceVersion: o.ResourceVersion(),
			Initial: d.Initial, Stale: d.Stale,
		},
	}
	if r := o.Resource(); r.Group != "" || r.Resource != "secrets" {
		out.Delta.Object = o.JSON()
		if d.New != nil && d.Old != nil {
			out.Delta.OldObject = d.Old.JSON()
		}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(out); err != nil {
		return nil, fmt.Errorf("%s: the object is no JSON", d) // the encoder's error would quote it
	}
	return b.Bytes(), nil
}
