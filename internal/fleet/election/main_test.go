package election

import (
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestMain(m *testing.M) { leaks.Main(sandboxtest.Wrap(m)) }
