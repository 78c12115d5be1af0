package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

// questions are the first questions of people about this repository, each with its answer: a file,
// and the function, method or type in it. A reader without other help should find a place within
// half a minute; test the names on a fresh reader when a place moves, and give the reader the
// questions only.
var questions = []struct{ question, file, name string }{
	{"Where is a delta evaluated against all routes at once?", "pkg/filters/table.go", "Match"},
	{"Who takes the cut lock for a delta?", "pkg/informer/internal/persist/change.go", "Apply"},
	{"Where does the setting existing keep or drop the objects of the first list?", "pkg/filters/table.go", "NewTable"},
	{"Where does the pipeline decide which routes get a delta, and where does back-pressure begin?", "internal/pipeline/admit.go", "Admit"},
	{"Where is it decided when the next batch of a route is taken, and how long it waits?", "internal/pipeline/queue/schedule.go", "Plan"},
	{"Where is the delay of a retry of the handler set?", "internal/pipeline/deliver/handle.go", "reject"},
	{"Where does a delta become a dead letter?", "internal/pipeline/deliver/failure.go", "writeDeadLetters"},
	{"Where does the circuit breaker of a sink open?", "internal/circuit/breaker.go", "Failed"},
	{"Where is a delete held back, in case its object comes again?", "internal/pipeline/rules/hold.go", "DeleteHolds"},
	{"Where does a reload replace the routes?", "internal/pipeline/reconfigure.go", "Swap"},
	{"Where is the state written to disk, and how often?", "internal/checkpoint/writer.go", "Run"},
	{"Where is the list of the kinds of handlers and sinks, to add one?", "pkg/plugins/all/all.go", "Kinds"},
}

// TestQuestions: the places that answer the questions exist.
func TestQuestions(t *testing.T) {
	if len(questions) != 12 {
		t.Errorf("%d questions", len(questions))
	}
	for _, q := range questions {
		file := filepath.Join("../..", filepath.FromSlash(q.file))
		text, err := os.ReadFile(file) //nolint:gosec // of the table
		if err != nil {
			t.Errorf("%s: %v", q.question, err)
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if !declares(parsed, q.name) {
			t.Errorf("%s: %s declares no %s", q.question, q.file, q.name)
		}
	}
}

// declares reports whether a file declares a function, method or type of a name.
func declares(file *ast.File, name string) bool {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == name {
					return true
				}
			}
		}
	}
	return false
}
