package config

import (
	"maps"
	"slices"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/deltarouter/deltarouter/internal/similar"
)

// historyOff is the text of a history that is off, and sourceNone that of a source without one.
const (
	historyOff = "off"
	sourceNone = "none"
)

// History configures the record of changes and decisions on disk. In YAML it is off, or a
// [HistoryForm].
type History struct {
	Node Node
	Off  bool
	HistoryForm
}

// HistoryForm is a History that is on.
type HistoryForm struct {
	Keep    time.Duration            `yaml:"keep" default:"24h" min:"1m" max:"8760h" doc:"Time for which changes and decisions are kept."`
	MaxSize Size                     `yaml:"maxSize" default:"512Mi" min:"16Mi" doc:"Maximum size of the history. Beyond it the oldest part is removed, also before the end of keep."`
	Objects bool                     `yaml:"objects" default:"true" doc:"Record the states of objects, as differences to the states before. Without them the history has decisions, and the names and versions of what changed. The data of Secrets is never recorded."`
	Sources map[string]HistorySource `yaml:"sources" doc:"The sources that differ, by name: none, or the keys below."`
}

// HistorySource is the history of a source. In YAML it is none, or a [HistorySourceForm].
type HistorySource struct {
	None bool
	HistorySourceForm
}

// HistorySourceForm is the history of a source that has one.
type HistorySourceForm struct {
	Keep    time.Duration `yaml:"keep" min:"1m" max:"8760h" doc:"Time for which the changes of the source are kept. Absent: keep of the history."`
	Objects bool          `yaml:"objects" default:"true" doc:"Record the states of its objects, if the history does."`
}

// scalarOf reports whether a node is one word; a problem if it is another one.
func scalarOf(n Node, word string) (is bool, problems Problems) {
	if n.IsZero() || n.yaml.Kind == yaml.MappingNode {
		return false, nil
	}
	text, problems := n.text()
	if n.yaml.Kind != yaml.ScalarNode || text != word && len(problems) == 0 {
		return false, Problems{n.Problemf("must be %s, or a mapping, not %s", word, n.describe())}
	}
	return text == word, problems
}

func (h *History) unmarshal(n Node) (problems Problems) {
	h.Node = n
	if h.Off, problems = scalarOf(n, historyOff); h.Off || len(problems) > 0 {
		h.Off = true
		return problems
	}
	return n.Decode(&h.HistoryForm)
}

func (s *HistorySource) unmarshal(n Node) (problems Problems) {
	if s.None, problems = scalarOf(n, sourceNone); s.None || len(problems) > 0 {
		return problems
	}
	return n.Decode(&s.HistorySourceForm)
}

// A history that is not configured takes at most a share of state.maxSize, so that a volume of
// twice state.maxSize has room for it, but not less than the key may say.
const (
	stateShare   = 8
	leastHistory = 16 << 20
)

// defaultHistory makes the history that of a configuration without one: with a state folder there
// is one.
func (c *Config) defaultHistory() {
	if c.History != nil || c.main != nil || c.State.Dir == "" {
		return
	}
	empty, problems := ParseNode("", []byte("{}"))
	h := &History{}
	if problems = append(problems, empty.Decode(&h.HistoryForm)...); len(problems) == 0 {
		h.MaxSize = min(h.MaxSize, max(c.State.MaxSize/stateShare, leastHistory))
		c.History = h
	}
}

// IsOn reports whether there is a history.
func (h *History) IsOn() bool { return h != nil && !h.Off }

// checkHistory checks that the history has a folder, and that its sources exist.
func (c *Config) checkHistory() (problems Problems) {
	if !c.History.IsOn() || c.main != nil {
		return nil
	}
	if c.State.Dir == "" {
		problems = append(problems, c.History.Node.Problemf("is stored in the state folder: set state.dir, or write history: off"))
	}
	known := slices.Sorted(maps.Keys(c.Sources))
	for _, name := range slices.Sorted(maps.Keys(c.History.Sources)) {
		if c.Sources[name] == nil {
			problems = append(problems, c.History.Node.At("sources").At(name).Problemf("there is no source %q%s", name, similar.Suggest(name, known)))
		}
	}
	return problems
}
