package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/history/fields"
	"github.com/deltarouter/deltarouter/internal/listing"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/internal/recording"
)

// past has the flags that ask for the objects of a source as they were.
type past struct{ at, diff string }

// checkPast refuses flags that do not go with a time.
func (g *get) checkPast(names []string) error {
	switch {
	case g.past.at == "" && g.past.diff != "":
		return cli.Mistakef("-diff needs -at: they are the two times")
	case g.past.at != "" && (g.active != "" || g.watching() || g.index != "" || g.query.Filter != "" || len(names) == 0):
		return cli.Mistakef("-at needs a source, and goes with NAME, -n and -l only")
	}
	return nil
}

const (
	// mostBytes bounds the objects of one time that the command sorts, in bytes.
	mostBytes = 1 << 30
	// mostFields bounds the differing fields of an object that are shown.
	mostFields = 20
)

// difference is an object that two times differ in.
type difference struct {
	Change    string            `json:"change"` // added, deleted or changed
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Fields    []api.FieldChange `json:"fields,omitempty"`
	More      int               `json:"moreFields,omitempty"`
}

// then prints the objects as they were at a time, or the differences between two times.
func (g *get) then(ctx context.Context) error {
	now := time.Now()
	at, err := timeOf("at", g.past.at, now)
	if err != nil {
		return err
	}
	other, err := timeOf("diff", g.past.diff, now)
	if err != nil {
		return err
	}
	if !other.IsZero() && g.Output != "table" && g.Output != "json" {
		return cli.Mistakef("-diff is printed as a table or with -o json")
	}
	selector, err := labels.Parse(g.query.Labels)
	if err != nil {
		return cli.Mistakef("-l: %s", err.Error())
	}
	if err := g.resolve(ctx); err != nil {
		return err
	}
	objects, err := g.objectsAt(ctx, at, selector)
	if err != nil {
		return err
	}
	if !other.IsZero() {
		others, err := g.objectsAt(ctx, other, selector)
		if err != nil {
			return err
		}
		if other.Before(at) {
			objects, others = others, objects
		}
		return g.printDifferences(differences(objects, others))
	}
	p, err := listing.New(g.Out, g.Output, g.named)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if err := p.Print(json.RawMessage(objects[key])); err != nil {
			return err
		}
	}
	switch {
	case p.Len() == 0 && g.named:
		return fmt.Errorf("source %s had no object %q then", g.query.Source, strings.TrimPrefix(g.query.Namespace+"/"+g.query.Name, "/"))
	case p.Len() == 0 && (g.Output == "table" || g.Output == "wide"):
		fmt.Fprintln(g.Err, "No objects.")
	}
	return p.End("")
}

// objectsAt returns the selected objects as they were at a time, by namespace/name.
func (g *get) objectsAt(ctx context.Context, at time.Time, selector labels.Selector) (map[string]string, error) {
	stream, err := g.Client.Excerpt(ctx, api.ExcerptQuery{Sources: []string{g.query.Source}, Namespace: g.query.Namespace, Since: at, Initial: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }() // it was only read
	r, err := recording.NewReader(stream, recording.Limits{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if h := r.Header(); h.Time.Sub(at) > time.Second {
		return nil, fmt.Errorf("the history begins at %s: of the time before, nothing is known", h.Time.Local().Format(time.DateTime))
	} else if h.History != nil && slices.Contains(h.History.Without, g.query.Source) {
		return nil, fmt.Errorf("the history does not have the states of source %s: see history.objects and history.sources; those of Secrets are never recorded", g.query.Source)
	}
	objects, size := make(map[string]string), 0
	for {
		l, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case l.Op == recording.End && l.Damaged > 0:
			warnGaps(&g.Remote, api.HistoryGaps{Damaged: l.Damaged})
		case l.Op != recording.Existing:
			continue
		}
		metadata := rawjson.Value(l.Object).Get("metadata")
		name := metadata.Get("name").Str()
		if g.named && g.query.Name != name || !selector.Matches(labelsOf(metadata)) {
			continue
		}
		if size += len(l.Object); size > mostBytes {
			return nil, errors.New("these are more objects than this command has room for: select some with -n or -l")
		}
		objects[strings.TrimPrefix(metadata.Get("namespace").Str()+"/"+name, "/")] = l.Object
	}
}

func labelsOf(metadata rawjson.Value) labels.Set {
	set := labels.Set{}
	for name, value := range metadata.Get("labels").Fields() {
		set[name] = value.Str()
	}
	return set
}

// differences compares the objects of two times.
func differences(before, after map[string]string) (all []difference) {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, existed := before[key]
		is, exists := after[key]
		d := difference{Change: "changed", Name: key}
		if namespace, name, ok := strings.Cut(key, "/"); ok {
			d.Namespace, d.Name = namespace, name
		}
		switch {
		case !existed:
			d.Change = "added"
		case !exists:
			d.Change = "deleted"
		default:
			changes, more := fields.Compare(was, is, mostFields)
			for _, f := range changes {
				d.Fields = append(d.Fields, api.FieldChange(f))
			}
			if d.More = more; len(changes) == 0 {
				continue
			}
		}
		all = append(all, d)
	}
	return all
}

func (g *get) printDifferences(all []difference) error {
	if g.Output == "json" {
		return g.PrintJSON(append([]difference{}, all...))
	}
	for i := range all {
		d := &all[i]
		cli.Printf(g.Out, "%s %s\n", d.Change, strings.TrimPrefix(d.Namespace+"/"+d.Name, "/"))
		printFields(g.Out, d.Fields, d.More)
	}
	if len(all) == 0 {
		fmt.Fprintln(g.Err, "No differences.")
	}
	return nil
}
