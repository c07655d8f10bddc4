
pipelineensemble*
TEXT"@2
SCORE
ÿÿÿÿÿÿÿÿÿz\
-
tokensÿÿÿÿÿÿÿÿÿ
TEXTTEXT"

IDSids
)
classify

IDSids"
LOGITSSCORE