package statecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/history"
)

// historyDir returns the folder of the history beside the state file; empty: there is none, or it
// must not be read, because a router writes it.
func (c *selection) historyDir() string {
	if c.live || filepath.Base(c.path) != stateFile { // a backup may be in any folder
		return ""
	}
	dir := filepath.Join(filepath.Dir(c.path), history.Folder)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

func (c *selection) noHistory() error {
	return fmt.Errorf("there is no history beside %s: name a state folder that has a folder %s", c.path, history.Folder)
}

// historyReport is a history in figures.
type historyReport struct {
	Dir       string     `json:"folder"`
	Segments  int        `json:"segments"`
	Bytes     int64      `json:"bytes"`
	From      *time.Time `json:"from,omitempty"` // of the first record; absent: there is none
	To        *time.Time `json:"to,omitempty"`   // of the last one
	Changes   int        `json:"changes"`
	Decisions int        `json:"decisions"`
	// Configurations counts those that follow each other. A start with the one that ran before, and
	// with the same version of the router, is not counted.
	Configurations int             `json:"configurations"`
	Lost           int             `json:"lost"` // records that could not be written
	Damage         []damagedReport `json:"damage,omitempty"`
}

// damagedReport is a segment whose records are known up to the damage only.
type damagedReport struct {
	File  string `json:"file"`
	Error string `json:"error"`
}

// inspectHistory describes the history of a folder; nil: the folder has none.
func inspectHistory(ctx context.Context, dir string) (*historyReport, error) {
	if dir == "" {
		return nil, nil //nolint:nilnil // see above
	}
	reader, err := history.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	r := &historyReport{Dir: dir}
	if r.Segments, r.Bytes, err = sizeOf(reader); err != nil {
		return nil, err
	}
	r.From, r.To = timeOf(reader.First()), timeOf(reader.End())
	reader.Stateless = true
	reader.Damaged = func(path string, err error) {
		r.Damage = append(r.Damage, damagedReport{filepath.Base(path), err.Error()})
	}
	var configuration configurations
	return r, reader.Records(ctx, history.Span{}, func(record any) error {
		switch record := record.(type) {
		case *history.Change:
			r.Changes++
		case *history.Decision:
			r.Decisions++
		case *history.Begin:
			if configuration.differs(record) {
				r.Configurations++
			}
		case *history.Lost:
			r.Lost += record.Number
		}
		return nil
	})
}

// sizeOf returns the number of segments and the bytes of their files.
func sizeOf(r *history.Reader) (segments int, bytes int64, err error) {
	all := r.Segments()
	for _, files := range all {
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				return 0, 0, fileerr.Explain(err)
			}
			bytes += info.Size()
		}
	}
	return len(all), bytes, nil
}

// configurations finds the begins that bring something new: each segment repeats the last one.
type configurations struct{ router, cluster, config string }

func (c *configurations) differs(b *history.Begin) bool {
	now := configurations{b.Router, b.Cluster, b.Config}
	before := *c
	*c = now
	return now != before
}

// printTo prints the report as a part of a table.
func (r *historyReport) printTo(w io.Writer) {
	cli.Printf(w, "\nhistory\t%s\n", r.Dir)
	cli.Printf(w, "size\t%d bytes, %s\n", r.Bytes, cli.Count(r.Segments, "segment"))
	if r.From != nil && r.To != nil {
		cli.Printf(w, "time\t%s to %s\n", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	cli.Printf(w, "records\t%s, %s, %s\n", cli.Count(r.Changes, "change"), cli.Count(r.Decisions, "decision"), cli.Count(r.Configurations, "configuration"))
	cli.Printf(w, "lost\t%s\n", cli.Count(r.Lost, "record"))
	for _, d := range r.Damage {
		cli.Printf(w, "damage\t%s: %s\n", d.File, d.Error)
	}
}

// changeLine is a change in an export.
type changeLine struct {
	Type      string `json:"type"`
	Source    string `json:"source"`
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	api.HistoryRecord
}

// decisionLine is a decision in an export.
type decisionLine struct {
	Type string `json:"type"`
	api.Run
}

// configurationLine is a configuration in an export, from the time at which it began.
type configurationLine struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`
	*history.Begin
}

// exportHistory prints the records of a history as lines of JSON, in the order of time.
func (c *selection) exportHistory(ctx context.Context, s cli.Streams, states bool) error {
	dir := c.historyDir()
	if dir == "" {
		return cli.Invalid(c.noHistory())
	}
	reader, err := history.OpenFolder(dir)
	if err != nil {
		return err
	}
	damaged := 0
	reader.Stateless = !states
	reader.Damaged = func(path string, err error) {
		damaged++
		cli.Printf(s.Err, "%s: %v\n", path, err)
	}
	out := json.NewEncoder(s.Raw)
	out.SetEscapeHTML(false)
	var configuration configurations
	err = reader.Records(ctx, history.Span{}, func(record any) error {
		switch r := record.(type) {
		case *history.Change:
			return out.Encode(changeOf(r))
		case *history.Decision:
			return out.Encode(decisionLine{"decision", api.RunOf(r, func(text string) string { return text })})
		case *history.Begin:
			if configuration.differs(r) {
				return out.Encode(configurationLine{"configuration", r.At.UTC(), r})
			}
		case *history.Lost:
			return out.Encode(line{"type": "lost", "time": r.At.UTC(), "records": r.Number, "reason": r.Reason})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.Encode(line{"type": "end", "damaged": damaged})
}

func changeOf(c *history.Change) changeLine {
	l := changeLine{"change", c.Source, c.Kind, c.Key.Namespace, c.Key.Name, api.ChangeOf(c)}
	if c.Before != "" {
		l.Before = shown(c.Before)
	}
	if c.After != "" {
		l.After = shown(c.After)
	}
	return l
}
