package election

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/deltarouter/deltarouter/test/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(sandboxtest.Wrap(m)) }
