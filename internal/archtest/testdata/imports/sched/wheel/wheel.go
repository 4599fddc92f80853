package wheel

import _ "github.com/dispatcher-engine/dispatcher/ingress"
